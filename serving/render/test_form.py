import pytest

from serving.render import examples, form
from tools.cli.errors import UserError


@pytest.mark.parametrize("name", ["compose", "docker", "systemd"])
def test_address_that_others_reach_needs_a_key(name: str) -> None:
    with pytest.raises(UserError, match=r"^BIND=0\.0\.0\.0 \(--set\): .*set API_KEY_FILE or VLLM_API_KEY"):
        examples.render(name, *examples.PLAIN, "BIND=0.0.0.0")


@pytest.mark.parametrize("name", ["compose", "docker", "systemd"])
def test_several_hosts_need_the_first_ones_address(name: str) -> None:
    with pytest.raises(UserError, match="--nodes 2 needs --master-addr"):
        examples.render(name, *examples.PLAIN, hosts=form.Hosts(2))


@pytest.mark.parametrize("name", form.FORMS)
def test_gpus_must_spread_evenly(name: str) -> None:
    master = None if name == "kubernetes" else "192.0.2.1"
    with pytest.raises(UserError, match=r"TP x DP = 4 x 1 = 4 GPUs cannot be spread over 3 hosts"):
        examples.render(name, *examples.PLAIN, hosts=form.Hosts(3, master))


def test_every_form_passes_the_same_arguments() -> None:
    asked = examples.launch(*examples.PLAIN).arguments
    for name in form.FORMS:
        (text,) = examples.render(name, *examples.PLAIN)
        assert all(word in text.replace('\\"', '"') for word in asked)
