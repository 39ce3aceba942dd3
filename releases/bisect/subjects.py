"""The images of a bisect: held by an engine, loaded into it, or built with fewer steps."""

import contextlib
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from images.engine import layout, reference
from images.engine.interface import Engine
from images.manifest import model
from releases.bisect.cutting import Cut
from releases.bisect.plan import Plan
from releases.bisect.verdict import Subject
from releases.changelog.entry import Entry
from releases.tree import build, released_image
from releases.tree.git import Git
from tools.cli.errors import UserError
from tools.cli.output import Output


class Subjects:
    """Makes what COMMAND judges. What was built is removed at the end; images stay in the engine, as `left` lists.

    Attributes:
        left: names that were given to images in the engine.
    """

    def __init__(
        self,
        plan: Plan,
        entries: tuple[Entry, Entry],
        environment: Mapping[str, str],
        out: Output,
        *,
        root: Path | None,
        engine: Engine | None,
        target: str | None = None,
    ) -> None:
        """Takes what it needs, and does nothing yet.

        Args:
            plan: the steps in question.
            entries: of the good and of the bad image.
            environment: switches that it sets are kept for live steps.
            out: where progress goes.
            root: the source tree; None: nothing can be built.
            engine: images are loaded into it; None: COMMAND looks at layouts.
            target: built in place of the image, for both ends too.
        """
        self._plan = plan
        self._good, self._bad = entries
        self._environment = environment
        self._out = out
        self._root = root
        self._engine = engine
        self._target = target
        self._stack = contextlib.ExitStack()
        self._workspace: tuple[build.Workspace, Cut] | None = None
        self._whole: dict[str, tuple[str, Path | None]] = {}
        self.left: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def can_build(self) -> bool:
        """Whether a state can be built that switches do not bring about."""
        return self._root is not None

    def good(self) -> Subject:
        """The good image. Raises UserError."""
        manifest = self._plan.good
        switches = {one.name: self._environment[one.name] for one in manifest.switches if one.name in self._environment}
        numbers = tuple(step.number for step in manifest.steps)
        if self._target:
            with build.elsewhere(self._git(self._good), self._good.commit) as workspace:
                made = self._keep(self._make(workspace, manifest, numbers))
            return Subject(str(self._good.tag), made, switches, numbers)
        return Subject(*self._release(self._good), switches, numbers)

    def switched(self, state: int) -> Subject:
        """The bad image with the switches of a state. Raises UserError."""
        switches, live = self._plan.switches(state, self._environment), self._plan.live(state)
        if self._target:
            workspace, cut = self._cut_tree()
            cut.without(())
            made = self._make(workspace, self._plan.bad, self._plan.live(self._plan.count))
            return Subject(str(self._bad.tag), made, switches, live)
        return Subject(*self._release(self._bad), switches, live)

    def rebuilt(self, state: int) -> Subject:
        """An image of the bad one's commit without the steps that are off in a state. Raises UserError."""
        workspace, cut = self._cut_tree()
        live = self._plan.live(state)
        cut.without({step.number for step in self._plan.off(state)})
        self._out.note(f"building {self._bad.tag} with steps {', '.join(map(str, live)) or 'none'}")
        made = self._make(workspace, self._plan.bad, live)
        switches = self._plan.switches(self._plan.count, self._environment)
        name = f"{self._bad.tag}-bisect-{state}"
        image = self._load(made, name) if self._engine and not self._target else name
        return Subject(image, made, switches, live)

    def _release(self, entry: Entry) -> tuple[str, Path | None]:
        """What the engine calls the image of a release, and its layout where one was built; once an image."""
        name = str(entry.tag)
        if name not in self._whole:
            self._whole[name] = self._found(entry)
        return self._whole[name]

    def _found(self, entry: Entry) -> tuple[str, Path | None]:
        if self._engine is not None:
            held = self._engine.own_id(entry.image_id, entry.digest)
            if self._engine.find(held) is not None:
                return held, None
        elif self._root is None:
            return str(entry.tag), None
        if self._root is None:
            assert self._engine is not None
            lacking = f"{self._engine.name} lacks {entry.tag}"
            raise UserError(f"{lacking}: pull it, or go into Moet's source tree, where it can be built")
        image = self._stack.enter_context(released_image.released_image(Git(self._root), entry, self._out))
        if self._engine is None:
            return str(entry.tag), image.directory
        taken = self._engine.find(str(entry.tag)) is not None
        return self._load(image.directory, f"{entry.tag}-bisect" if taken else str(entry.tag)), image.directory

    def _load(self, made: Path, name: str) -> str:
        assert self._engine is not None
        with self._out.progress() as bar:
            loaded = self._engine.load(layout.read(made), reference.parse(name), bar)
        self.left.append(name)
        return loaded.image_id

    def _cut_tree(self) -> tuple[build.Workspace, Cut]:
        if self._workspace is None:
            git = self._git(self._bad)
            workspace = self._stack.enter_context(build.elsewhere(git, self._bad.commit))
            self._workspace = workspace, Cut(workspace.root, self._plan.bad)
        return self._workspace

    def _git(self, entry: Entry) -> Git:
        if self._root is None:
            raise UserError(f"building {entry.tag} needs Moet's source tree: go into one or name it with --tree DIR")
        git = Git(self._root)
        if git.resolve(entry.commit) is None:
            raise UserError(f"{self._root}: lacks the commit {entry.commit} of {entry.tag}: git fetch")
        return git

    def _make(self, workspace: build.Workspace, manifest: model.Manifest, live: tuple[int, ...]) -> Path:
        label = self._target or f"//images/{manifest.line}:{manifest.line}{'' if live else '.base'}"
        package, _, name = label.removeprefix("//").partition(":")
        made = workspace.build(label) / package / (name or package.rpartition("/")[2])
        if not made.exists():
            raise UserError(f"{label}: made nothing at {made}: name a target whose output is called like it")
        return made

    def _keep(self, made: Path) -> Path:
        """A copy that outlives the workspace."""
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="moet-bisect-")))
        kept = folder / made.name
        if made.is_dir():
            shutil.copytree(made, kept)
        else:
            shutil.copyfile(made, kept)
        return kept
