"""Groups of options: a parameter of a group's type stands for its options."""

import inspect

import pytest

import otm
from analysis.commands.app import app
from analysis.commands.options import grouped, models_of, sampling_of
from analysis.models.processing import Setting
from analysis.models.source import PairSource
from otm import Processing

SAMPLED = ("advise", "compare", "decode", "measure", "steps")


def test_every_command_that_samples_has_every_option_of_sampling():
    commands = {
        command.callback.__name__: inspect.signature(command.callback)
        for command in app.registered_commands
    }
    for name in SAMPLED:
        assert set(inspect.signature(sampling_of).parameters) <= set(commands[name].parameters), (
            name
        )
        assert set(inspect.signature(models_of).parameters) <= set(commands[name].parameters), name


def test_what_a_command_has_itself_does_not_reach_the_group():
    found = []

    @grouped
    def command(*, models: PairSource, temperature: str = "0.5,1", setting: Setting) -> None:
        found.extend((temperature, setting, models))

    command(temperature="2", top_k=3, draft_top_k=5, device="cpu")
    target = Processing(top_k=3)
    assert found == ["2", Setting(Processing(top_k=5), target), PairSource(device="cpu")]
    # the machine's options come last
    assert list(inspect.signature(command).parameters)[-1] == "trust_remote_code"
    assert inspect.signature(command).parameters["temperature"].default == "0.5,1"


def test_the_draft_is_sampled_as_the_target_unless_said():
    assert sampling_of(temperature=0.5, order="vllm") == Setting(
        *[Processing(temperature=0.5, order="vllm")] * 2
    )
    assert sampling_of(draft_temperature=0.0).draft == Processing(temperature=0.0)
    with pytest.raises(otm.errors.InvalidParameter, match="top_p"):
        sampling_of(top_p=2.0)
