"""What a profile is: how an image of a line is served, and the knobs that a person may turn."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal[
    "address",
    "boolean",
    "choice",
    "devices",
    "file",
    "folder",
    "image",
    "integer",
    "name",
    "number",
    "place",
    "switch",
    "text",
    "words",
]
Role = Literal[
    "arguments", "bind", "docker", "dp", "gpus", "image", "key", "model", "name", "offload", "port", "tp"
]
Schema = Literal["moet.profile.v1"]

SCHEMA: Schema = "moet.profile.v1"

# A boolean's, integer's and number's own type; words and devices are tuples; all else is a string.
Value = bool | int | float | str | tuple[str, ...]


@dataclass(frozen=True)
class Mount:
    """What a folder or volume of the host becomes: an absolute path in the container, read-only unless `write`."""

    target: str
    write: bool = False


@dataclass(frozen=True)
class Knob:
    """One knob. Its name is also the environment variable that sets it.

    What its value turns into, any of:
        flag: FLAG=VALUE of `vllm serve`; a boolean's flag stands alone.
        json: flag to a fragment of its JSON value; fragments of all knobs are merged. "{value}" in it stands for the
            value, "{NAME}" for another knob's.
        environment: a variable of the container. A switch is always one, of its own name.
        mount: the folder, file or volume, in the container.
        role: a part in the container that the launcher knows by itself.

    Attributes:
        name: capital letters, digits and underscores.
        kind: what a value must look like; serving/profiles/values.py says how each is read.
        meaning: what it is for, one line without a full stop.
        unit: of an integer or a number.
        default: None where there is none.
        required: whether it must be set.
        minimum: of an integer or a number, inclusive.
        maximum: likewise.
        choices: the only values of a choice or an integer.
        refused: further values, and why each is refused.
        on: a switch's value that is not 0.
        off: the value at which nothing is passed.
        needs: knobs that must not be at their `off` for this one to mean anything.
        implies: value, as text, to what other knobs are then set to; one that was set otherwise is refused.
        presets: what other knobs are set to while this boolean is on, unless they were set.
    """

    name: str
    kind: Kind
    meaning: str
    unit: str = ""
    default: Value | None = None
    required: bool = False
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[Value, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    on: str = "1"
    off: Value | None = None
    needs: tuple[str, ...] = ()
    implies: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    presets: Mapping[str, str] = field(default_factory=dict)
    role: Role | None = None
    flag: str | None = None
    json: Mapping[str, Any] = field(default_factory=dict)
    environment: str | None = None
    mount: Mount | None = None

    def is_off(self, value: Value | None) -> bool:
        """Whether nothing is passed at this value."""
        return value is None or (self.off is not None and value == self.off)


@dataclass(frozen=True)
class Container:
    """What every container of the profile has.

    Attributes:
        port: TCP port that the server listens at inside.
        model: the checkpoint's path inside.
        shared_memory_gib: /dev/shm beside KV offload, in GiB, where the host's own is not shared.
        ulimits: name to value, soft and hard; -1 for none. The stack's is in bytes.
    """

    port: int
    model: str
    shared_memory_gib: int
    ulimits: Mapping[str, int]


@dataclass(frozen=True)
class Needs:
    """What the images of the line need of model and host.

    Attributes:
        model_type: of the checkpoint's config.json.
        compute_capabilities: the only ones that the image's machine code runs on, such as "12.0".
        driver: NVIDIA driver's major version, the lowest.
    """

    model_type: str
    compute_capabilities: tuple[str, ...]
    driver: int


@dataclass(frozen=True)
class Start:
    """How long a start takes, in seconds from the container's start until the server answers.

    Attributes:
        expected: what is usual; progress is shown against it.
        deadline: when it has failed.
    """

    expected: int
    deadline: int


@dataclass(frozen=True)
class FirstStart(Start):
    """A start whose caches are empty, or another configuration's.

    Attributes:
        at_most: knob to the highest value that leaves tuning the memory it needs.
    """

    at_most: Mapping[str, float]


@dataclass(frozen=True)
class Serve:
    """What every server gets: arguments of `vllm serve`, and variables of the container."""

    flags: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Profile:
    """How a line is served; `sha256` in hex is its file's.

    `knobs` are by name, in the order in which they are shown and passed on. `first_start` is None where nothing is
    compiled or tuned at run time.
    """

    schema: Schema
    line: str
    title: str
    container: Container
    serve: Serve
    needs: Needs
    start: Start
    first_start: FirstStart | None
    knobs: Mapping[str, Knob]
    sha256: str

    def by_role(self, role: Role) -> Knob:
        """The knob that plays a part."""
        return next(knob for knob in self.knobs.values() if knob.role == role)

    @property
    def switches(self) -> tuple[Knob, ...]:
        """The knobs that are switches of the image's steps, and the self-test's."""
        return tuple(knob for knob in self.knobs.values() if knob.kind == "switch")
