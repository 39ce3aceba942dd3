"""Docker's events of a pull, also where it leaves some out."""

from images.engine.docker_pull import Pulling


class Watched:
    """The phases that were shown: name, total, done."""

    def __init__(self) -> None:
        self.phases: list[list[object]] = []

    def start(self, what: str, total: int) -> None:
        self.phases.append([what, total, 0])

    def advance(self, amount: int) -> None:
        self.phases[-1][2] = int(str(self.phases[-1][2])) + amount


def event(status: str, layer: str, current: int | None = None, total: int = 0) -> dict[str, object]:
    detail = {} if current is None else {"current": current, "total": total}
    return {"status": status, "id": layer, "progressDetail": detail}


def shown(*events: dict[str, object]) -> list[list[object]]:
    watched = Watched()
    pulling = Pulling(watched, "x")
    for one in events:
        pulling.show(one)
    return watched.phases


def test_all_bytes_come_then_are_unpacked() -> None:
    phases = shown(
        event("Downloading", "a", 5, 10),
        event("Download complete", "a"),
        event("Extracting", "a", 4, 10),
        event("Pull complete", "a"),
    )
    assert phases == [["pulling x", 10, 5], ["unpacking x", 10, 10]]


def test_a_layer_whose_download_was_never_told() -> None:
    phases = shown(
        event("Download complete", "small"),
        event("Downloading", "big", 100, 100),
        event("Download complete", "big"),
        event("Extracting", "small", 7, 7),
        event("Pull complete", "small"),
        event("Extracting", "big", 100, 100),
        event("Pull complete", "big"),
    )
    assert phases[-1] == ["unpacking x", 107, 107]
