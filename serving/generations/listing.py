"""What `moet serve generations` and `moet serve diff` print."""

from serving.generations import diff
from serving.generations.generation import Generation
from serving.generations.server import Server
from tools.cli.errors import UserError
from tools.cli.output import Output

SCHEMA = "moet.serve-generations.v1"


def show(server: Server, out: Output) -> None:
    """Prints the generations, the newest first."""
    rows = [
        [one.number, server.place(one), one.image.name, one.what, one.of, one.at, one.who, _changes(server, one)]
        for one in reversed(server.generations)
    ]
    out.table([">N", "place", "image", "by", "of", "made", "who", "what is another, or why it failed"], rows)
    if server.operation:
        operation = server.operation
        out.note(f"under way since {operation.at}: generation {operation.target}, {operation.phase}")
    out.document({
        "schema": SCHEMA,
        "server": server.name,
        "running": server.running,
        "previous": server.previous,
        "stopped": server.stopped,
        "generations": [{**one.document(), "place": server.place(one)} for one in server.generations],
    })


def show_diff(server: Server, a: int | None, b: int | None, out: Output) -> None:
    """Prints what is another in generation `b` (default: the running one) than in `a` (default: the previous one).

    Raises UserError where there is none of that number.
    """
    a, b = server.previous if a is None else a, server.running if b is None else b
    if a is None or b is None:
        why = "nothing was served yet" if b is None else "there is no previous generation: name two"
        raise UserError(f"{server.name}: {why}")
    before, after = server.generation(a), server.generation(b)
    found = diff.differences(before, after)
    out.line(f"{server.name}: generation {a} -> {b}" + ("" if found else ": nothing differs"))
    if found:
        columns = ["of", "what", f"generation {a}", f"generation {b}"]
        out.table(columns, [[one.part, one.name, one.before or "-", one.after or "-"] for one in found])
    out.document(diff.document(server.name, before, after))


def _changes(server: Server, one: Generation) -> str:
    """Why it failed; else what is another than in the one that it was made from, or that came before."""
    if one.why:
        return one.why
    other = one.of or one.number - 1
    return diff.brief(server.generation(other), one) if other else ""
