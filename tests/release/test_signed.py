"""Only what a key signed becomes current, where a key is given."""

from pathlib import Path

from tests.engine.engines import loopback_registry
from tests.release.host import Host
from tests.release.signing import key_pair
from tests.release.toy import LINE, R0, R1, document, moet


def test_only_what_the_key_signed(host: Host, tmp_path: Path) -> None:
    private, public = key_pair(tmp_path, "right")
    _, other = key_pair(tmp_path, "wrong")
    with loopback_registry() as address:
        repository = f"{address}/moet/{LINE}"
        there = ["--registry", repository, "--plain-http"]
        layouts = [word for tag in (R0, R1) for word in ("--layout", str(host.toy.image(tag).directory))]
        publish = ["release", "publish", "--tree", str(host.toy.root), "--key", str(private), *layouts]
        status, _, err = moet(*publish, *there, R0, R1)
        assert status == 0, err
        host.toy.rebuild_is_gone()
        first = document(*host.arguments(*there, "--to", R0, "--key", str(public)))
        assert first["source"] == "registry"
        before = host.state.read_bytes()
        for arguments in (
            host.arguments(*there, "--to", R1, "--key", str(other)),
            host.from_registry("--to", R1, "--key", str(public)),
        ):
            status, _, err = moet(*arguments)
            assert status == 1
            assert f"/moet/{LINE}@{host.toy.entry(R1).digest}: " in err.splitlines()[-1]
        assert host.state.read_bytes() == before and list(host.tags()) == [R0]
        document(*host.arguments(*there, "--to", R1, "--key", str(public)))
    status, _, err = moet(*host.arguments(*there, "--to", R0, "--key", str(public)))
    assert status == 1 and "nothing listens at" in err
