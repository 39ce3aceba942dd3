"""Whether every reasoning_effort of the line is taken, and means something of its own."""

from serving.check import talk
from serving.check.client import RefusedError
from serving.check.result import Result
from serving.check.subject import Subject

NAME = "reasoning effort"
_QUESTION = "Reply with the word yes."
_STEP_1 = ("step 1 of dsv41 has minimal, medium and an xhigh of its own: VLLM_MOET_REASONING_TIERS=0 switches it off",)


def effort(subject: Subject) -> Result:
    """Sends one short request for each name. Raises ClientError, but where a name is refused.

    vLLM 0.33.0 returns the prompt that the model is given (return_prompt_text): two names with the same prompt are one.
    """
    if subject.line is None:
        return Result(NAME, "skipped", "which names the model should take is not known: --line says whose it is")
    refused, prompts = dict[str, str](), dict[str, list[str]]()
    for name in subject.line.efforts:
        body = talk.request(subject.model, _QUESTION, 1) | {"reasoning_effort": name, "return_prompt_text": True}
        try:
            answer = subject.client.ask(talk.CHAT, body)
        except RefusedError as error:
            if error.status != 400:
                raise
            refused[name] = str(error)
            continue
        if isinstance(prompt := answer.get("prompt_text"), str):
            prompts.setdefault(prompt, []).append(name)
    if refused:
        name, words = next(iter(refused.items()))
        return Result(NAME, "fail", f"refused: {', '.join(refused)} ({name}: {words})", _STEP_1)
    names = ", ".join(subject.line.efforts)
    if same := [" and ".join(names) for names in prompts.values() if len(names) > 1]:
        return Result(NAME, "fail", f"the model is given the same prompt for {'; '.join(same)}", _STEP_1)
    known = "each with a prompt of its own" if prompts else "whether they differ is not known: no prompt_text came"
    return Result(NAME, "pass", f"takes {names}; {known}")
