MAX_TOKENS: int
DONE: int
NO_RECORD: int
BAD_SHAPE: int
FORKED: int
CLOSED: int
NOT_SUBMITTED: int
WAITING: int

def isas() -> list[str]: ...
def host_functions() -> tuple[int, int, int]: ...

class Job:
    def __init__(
        self,
        engine: Engine,
        x: int,
        ids: int,
        weights: int,
        out32: int,
        out16: int,
        tokens: int,
        slots: int,
        base: int,
    ) -> None: ...
    @property
    def address(self) -> int: ...
    @property
    def status(self) -> int: ...

class Engine:
    def __init__(
        self,
        hidden: int,
        intermediate: int,
        experts: int,
        slots: int,
        parts: int,
        limit: float,
        isa: str,
        spin_ns: int,
        cores: list[int],
        domains: list[int],
    ) -> None: ...
    def set_record(self, expert: int, record: int) -> None: ...
    def run(self, job: Job) -> None: ...
    def submit(self, job: Job) -> None: ...
    def wait(self, job: Job) -> None: ...
    def close(self) -> None: ...
    def isa_for(self, tokens: int) -> str: ...
    @property
    def forked(self) -> bool: ...
    def read_seconds(self, memory: int, size: int, ahead: int) -> float: ...
    def dots_a_second(self, isa: str, rows: int, rounds: int) -> float: ...
