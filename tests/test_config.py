"""Settings: where they come from, which wins, and how a mistake reads."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard import Guard, config
from guard.config import merge_settings, parse_setting, policy_from, read_settings
from guard.errors import ConfigError
from guard.policy import Policy, unjudged_verdict
from tests.scripted import Scripted


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BIASGUARD_DETECTOR")


def test_an_unknown_key_is_named_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"unknown setting 'treshold'; known are .*threshold"):
        policy_from({"treshold": 0.4})


@given(st.floats().filter(lambda x: not 0 <= x <= 1))
def test_a_threshold_outside_0_to_1_is_refused_in_one_sentence(value: float) -> None:
    with pytest.raises(ConfigError, match=r"threshold: input should be .*, got ") as caught:
        policy_from({"threshold": value})
    assert "\n" not in str(caught.value)


def test_a_threshold_of_an_unknown_type_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"thresholds.*colour"):
        policy_from({"thresholds": {"colour": 0.5}})


def test_an_overlap_that_leaves_no_progress_is_refused() -> None:
    with pytest.raises(ConfigError, match="overlap must be at most"):
        policy_from({"overlap": 200})


def test_file_then_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "guard.toml").write_text('action = "redact"\nthreshold = 0.4\n')
    monkeypatch.setenv("BIASGUARD_THRESHOLD", "0.6")
    assert read_settings() == {"action": "redact", "threshold": "0.6"}
    assert policy_from(read_settings()) == Policy(action="redact", threshold=0.6)


def test_the_second_look_is_set_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "guard.toml").write_text('second_look_ms = "none"\nsecond_look_threshold = 0.2\n')
    monkeypatch.setenv("BIASGUARD_SECOND_LOOK", "false")
    policy = policy_from(read_settings())
    assert policy == Policy(second_look=False, second_look_ms=None, second_look_threshold=0.2)
    guard = Guard(detector=Scripted(), second_look=True)
    assert guard.session({"second_look_ms": 5}).policy.second_look_ms == 5
    assert guard.policy.second_look
    for values in ({"second_look_ms": 0}, {"second_look_threshold": 1.1}, {"second_look": "x"}):
        with pytest.raises(ConfigError, match=next(iter(values))):
            policy_from(values)


def test_the_table_of_a_project_above_is_found(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.guard]\nscope = "response"\n')
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert read_settings(below) == {"scope": "response"}


def test_thresholds_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIASGUARD_THRESHOLDS", "gender=0.4, age=0.7")
    assert policy_from(read_settings()).thresholds == {"gender": 0.4, "age": 0.7}
    monkeypatch.setenv("BIASGUARD_THRESHOLDS", "gender")
    with pytest.raises(ConfigError, match="must look like"):
        read_settings()


def test_a_setting_is_spelled_alike_in_a_variable_and_an_option() -> None:
    assert parse_setting("actions", "age=flag, tool.age=raise,", "it") == {
        "age": "flag",
        "tool.age": "raise",
    }
    assert parse_setting("action", "a=b", "it") == "a=b"
    assert parse_setting("timeout_ms", "none", "it") is None
    assert parse_setting("queue_ms", "none", "it") is None
    assert parse_setting("second_look_ms", "none", "it") is None
    assert parse_setting("second_look_threshold", "none", "it") is None
    assert parse_setting("message", "none", "it") == "none"
    with pytest.raises(ConfigError, match=r"^--guard thresholds must look like 'gender=0\.4,"):
        parse_setting("thresholds", "0.4", "--guard thresholds")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("actoin = 1", r"guard\.toml: unknown setting 'actoin'"),
        ("action = [", r"guard\.toml: not valid TOML"),
        ('action = "explode"', r"guard\.toml: action: input should be"),
    ],
)
def test_a_mistake_in_a_file_names_the_file(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "guard.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_settings()


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Callable[[], str]:
    """What was warned of, in a process that has not warned yet."""
    monkeypatch.setattr(config, "_warned", set())
    return lambda: "\n".join(record.getMessage() for record in caplog.records)


def test_a_variable_of_other_software_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, logged: Callable[[], str]
) -> None:
    monkeypatch.setenv("GUARD_TOKEN", "secret")
    assert Guard(detector=Scripted()).policy == Policy()
    assert logged() == ""


def test_a_misspelt_variable_is_warned_of_once_with_the_closest(
    monkeypatch: pytest.MonkeyPatch, logged: Callable[[], str]
) -> None:
    monkeypatch.setenv("BIASGUARD_ACTOIN", "flag")
    monkeypatch.setenv("BIASGUARD_XYZZY", "secret")
    assert read_settings() == read_settings() == {}
    assert logged() == (
        "BIASGUARD_ACTOIN is not a setting of guard and is ignored; "
        "did you mean BIASGUARD_ACTION?\n"
        "BIASGUARD_XYZZY is not a setting of guard and is ignored."
    )


def test_a_variables_old_name_is_understood_and_warned_of_once(
    monkeypatch: pytest.MonkeyPatch, logged: Callable[[], str]
) -> None:
    monkeypatch.setenv("GUARD_ACTION", "flag")
    assert read_settings() == read_settings() == {"action": "flag"}
    assert logged() == (
        "GUARD_ACTION was renamed to BIASGUARD_ACTION; the next release ignores it."
    )
    monkeypatch.setenv("BIASGUARD_ACTION", "redact")
    assert read_settings() == {"action": "redact"}
    monkeypatch.setenv("GUARD_THRESHOLDS", "gender")
    with pytest.raises(ConfigError, match="environment: GUARD_THRESHOLDS must look like"):
        read_settings()


def test_a_whole_policy_reads_no_other_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "guard.toml").write_text("no = TOML")
    monkeypatch.setenv("BIASGUARD_THRESHOLD", "many")
    assert Guard(Policy(action="flag"), detector=Scripted()).policy == Policy(action="flag")
    with pytest.raises(ConfigError):
        Guard(detector=Scripted())


def test_thresholds_of_a_type_win_over_one_for_all() -> None:
    policy = Policy(threshold=0.2, thresholds={"age": 0.9})
    points = {"balanced": dict.fromkeys(["age", "race"], 0.5)}
    assert policy.threshold_for("age", points) == 0.9
    assert policy.threshold_for("race", points) == 0.2
    assert Policy().threshold_for("race", points) == 0.5


@pytest.mark.parametrize(
    ("earlier", "later", "merged"),
    [
        ({"threshold": 0.9}, {"operating_point": "strict"}, {"operating_point": "strict"}),
        ({"thresholds": {"age": 0.9}}, {"operating_point": "quiet"}, {"operating_point": "quiet"}),
        ({"thresholds": {"age": 0.9}}, {"threshold": 0.2}, {"threshold": 0.2}),
        (
            {"threshold": 0.9, "thresholds": {"age": 0.9}},
            {"operating_point": "strict", "thresholds": {"race": 0.3}},
            {"operating_point": "strict", "thresholds": {"race": 0.3}},
        ),
        (
            {"threshold": 0.9, "operating_point": "quiet"},
            {"thresholds": {"age": 0.3}},
            {"threshold": 0.9, "operating_point": "quiet", "thresholds": {"age": 0.3}},
        ),
        ({"threshold": 0.9}, {"action": "flag"}, {"threshold": 0.9, "action": "flag"}),
        ({"actions": {"age": "flag"}}, {"action": "redact"}, {"action": "redact"}),
        (
            {"action": "redact", "actions": {"age": "flag"}},
            {"actions": {"tool": "raise"}},
            {"action": "redact", "actions": {"tool": "raise"}},
        ),
    ],
)
def test_the_later_choice_of_thresholds_and_actions_wins(
    earlier: dict[str, object], later: dict[str, object], merged: dict[str, object]
) -> None:
    assert merge_settings(earlier, later) == merged
    policy = policy_from(later, base=policy_from(earlier))
    assert policy == policy_from(merged)
    # What no source gave stays not given, however many sources follow.
    assert policy_from({}, base=policy).model_fields_set == set(merged)


def test_an_operating_point_of_the_environment_wins_over_a_threshold_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "guard.toml").write_text("threshold = 0.99\n[thresholds]\ngender = 0.95\n")
    monkeypatch.setenv("BIASGUARD_OPERATING_POINT", "strict")
    assert read_settings() == {"operating_point": "strict"}
    monkeypatch.setenv("BIASGUARD_THRESHOLD", "0.2")
    assert read_settings() == {"operating_point": "strict", "threshold": "0.2"}


def test_an_argument_wins_over_the_thresholds_of_a_file(tmp_path: Path) -> None:
    from guard import Guard

    (tmp_path / "guard.toml").write_text("threshold = 0.99\n[thresholds]\ngender = 0.95\n")
    policy = Guard(threshold=0.2, detector=Scripted()).policy
    assert (policy.threshold, policy.thresholds) == (0.2, {})
    guard = Guard(operating_point="strict", detector=Scripted())
    assert (guard.policy.threshold, guard.policy.thresholds) == (None, {})
    call = guard.session({"threshold": 0.7}).policy
    assert (call.threshold, call.operating_point) == (0.7, "strict")
    call = Guard(threshold=0.2, detector=Scripted()).session("quiet").policy
    assert call.threshold is None


@pytest.mark.parametrize("line", ["index = 3", "weights = true", "detector = [1]"])
def test_settings_that_name_things_take_texts(tmp_path: Path, line: str) -> None:
    (tmp_path / "guard.toml").write_text(line)
    with pytest.raises(ConfigError, match=r"guard\.toml: \w+ must be a string, got"):
        read_settings()


def test_folders_in_a_file_lie_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "guard.toml").write_text('weights = "w"\nindex = "/i"\n')
    below = tmp_path / "a"
    below.mkdir()
    monkeypatch.chdir(below)
    assert read_settings() == {"weights": str(tmp_path / "w"), "index": "/i"}
    monkeypatch.setenv("BIASGUARD_WEIGHTS", "mine")
    assert read_settings()["weights"] == "mine"


@pytest.mark.parametrize(
    ("name", "text"), [("pyproject.toml", "tool = 3"), ("pyproject.toml", "[tool]\nguard = 3")]
)
def test_odd_project_files(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    if "guard" in text:
        with pytest.raises(ConfigError, match=r"\[tool\.guard\] must be a table, got 3"):
            read_settings()
    else:
        assert read_settings() == {}


def test_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "guard.toml").write_text("")

    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(ConfigError, match=r"guard\.toml: cannot be read \(Permission denied\)"):
        read_settings()


def _folder(path: Path) -> None:
    path.mkdir()


def _dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def _circle(path: Path) -> None:
    path.symlink_to(path.name)


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.skipif(os.name == "nt", reason="made of what Windows lacks")
@pytest.mark.parametrize("name", ["guard.toml", "pyproject.toml"])
@pytest.mark.parametrize("make", [_folder, _dangling, _circle, _pipe, _device])
def test_what_is_no_file_is_not_taken_for_no_settings(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    make(tmp_path / name)
    with pytest.raises(ConfigError, match=rf"{name}: cannot be read \(.+\); fix or remove it"):
        read_settings()


@pytest.mark.parametrize("text", ["actions = " + "[" * 5000, "actions = " + "{a=" * 5000])
def test_settings_nested_too_deep_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "guard.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"guard\.toml: not valid TOML"):
        read_settings()


@pytest.mark.parametrize("key", ["index", "weights"])
def test_a_folder_with_a_null_character_is_refused(tmp_path: Path, key: str) -> None:
    (tmp_path / "guard.toml").write_text(f'{key} = "a\\u0000b"')
    with pytest.raises(ConfigError, match=rf"guard\.toml: {key} must be a string, got"):
        read_settings()
    (tmp_path / "guard.toml").unlink()
    from guard import Guard

    with pytest.raises(ConfigError, match="is not a folder's name: it has a null character"):
        Guard(**{key: "a\0b"})


def test_a_working_directory_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getcwd", lambda: (_ for _ in ()).throw(FileNotFoundError()))
    with pytest.raises(ConfigError, match="The working directory is gone"):
        read_settings()


def test_no_time_limit_can_be_said_in_a_file_and_in_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "guard.toml").write_text('timeout_ms = "none"')
    assert policy_from(read_settings()).timeout_ms is None
    (tmp_path / "guard.toml").unlink()
    monkeypatch.setenv("BIASGUARD_TIMEOUT_MS", "none")
    assert policy_from(read_settings()).timeout_ms is None


def test_a_time_limit_no_clock_can_hold_is_refused() -> None:
    with pytest.raises(ConfigError, match="timeout_ms: input should be less than or equal"):
        policy_from({"timeout_ms": 1e300})


@pytest.mark.parametrize(
    "setting", [{"action": "redact"}, {"failure": "closed"}, {"language": "stop"}]
)
def test_watching_cannot_be_asked_to_stop(setting: dict[str, str]) -> None:
    (name, value), *_ = setting.items()
    with pytest.raises(ConfigError, match=f"{name} must be .* or left out, got '{value}'"):
        policy_from({"hold": "none", **setting})
    with pytest.raises(ConfigError, match=f"got '{value}'"):
        policy_from({"hold": "none"}, base=policy_from(setting))


def test_where_only_watching_was_asked_for_the_defaults_give_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BIASGUARD_HOLD", "none")
    policy = policy_from(read_settings())
    assert policy.hold == "none"
    assert not policy.stops_unjudged("failure")
    # Another call's own hold mode brings the default action back.
    assert policy_from({"hold": "association"}, base=policy).stops_unjudged("failure")


def test_labels_of_every_source_stand_beside_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "guard.toml").write_text('[labels]\nrelease = "6"\nregion = "eu"\n')
    monkeypatch.setenv("BIASGUARD_LABELS", "release=7")
    guard = Guard(labels={"app": "x"}, detector=Scripted())
    assert guard.policy.labels == {"release": "7", "region": "eu", "app": "x"}
    call = guard.session({"labels": {"tenant": "a", "app": "y"}}).policy
    assert call.labels == {"release": "7", "region": "eu", "app": "y", "tenant": "a"}
    for wrong, says in (
        ({"labels": {"a": "x" * 257}}, "labels.a: string should have at most 256 characters"),
        ({"labels": {"": "x"}}, "labels.*: string should have at least 1 character"),
        ({"labels": {"a": ""}}, "labels.a: a label takes a text that is not empty"),
        ({"labels": {"a": " "}}, "labels.a: a label takes a text that is not empty"),
        ({"labels": {"a": "(none)"}}, r"not '\(none\)', as reports call a missing one; leave"),
        ({"labels": {str(n): "x" for n in range(33)}}, "labels: dictionary should have at most 32"),
        ({"labels": ["a"]}, "labels: input should be a valid"),
    ):
        with pytest.raises(ConfigError, match=says):
            policy_from(wrong)


class TestActions:
    def test_the_most_particular_wins(self) -> None:
        rules = {"reasoning": "redact", "appearance": "flag", "reasoning.appearance": "raise"}
        policy = policy_from({"action": "terminate", "actions": rules})
        assert policy.action_for("age", "content") == "terminate"
        assert policy.action_for("age", "reasoning") == "redact"
        assert policy.action_for("appearance", "tool") == "flag"
        assert policy.action_for("appearance", "reasoning") == "raise"

    @given(
        st.dictionaries(
            st.tuples(
                st.sampled_from(["", "content", "reasoning", "tool"]),
                st.sampled_from(["", "age", "appearance"]),
            ).filter(any),
            st.sampled_from(["terminate", "redact", "flag", "raise"]),
        ),
        st.sampled_from(["terminate", "redact"]),
    )
    def test_every_cell_follows_its_nearest_rule(
        self, rules: dict[tuple[str, str], str], rest: str
    ) -> None:
        named = {".".join(filter(None, place)): action for place, action in rules.items()}
        policy = policy_from({"action": rest, "actions": named})
        for channel in ("content", "reasoning", "tool"):
            for kind in ("age", "appearance", "race"):
                nearest = [(channel, kind), ("", kind), (channel, "")]
                wanted = next((rules[place] for place in nearest if place in rules), rest)
                assert policy.action_for(kind, channel) == wanted  # type: ignore[arg-type]

    def test_they_come_from_a_file_a_variable_and_a_call(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "guard.toml").write_text(
            '[actions]\nappearance = "flag"\nreasoning.age = "redact"\n'
        )
        assert policy_from(read_settings()).actions == {
            "appearance": "flag",
            "reasoning.age": "redact",
        }
        monkeypatch.setenv("BIASGUARD_ACTIONS", "tool=raise, reasoning.age = flag")
        policy = policy_from(read_settings())
        assert policy.actions == {"tool": "raise", "reasoning.age": "flag"}
        call = policy_from({"actions": {"content": "redact"}}, base=policy)
        assert call.actions == {"content": "redact"}
        monkeypatch.setenv("BIASGUARD_ACTIONS", "tool")
        with pytest.raises(ConfigError, match="BIASGUARD_ACTIONS must look like 'appearance=flag"):
            read_settings()

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"colour": "flag"}, "unknown key 'colour'; use a bias type .*, a channel .* or both"),
            ({"reasoning": {"colour": "flag"}}, "unknown key 'reasoning.colour'"),
            ({"age": {"reasoning": "flag"}}, "unknown key 'age.reasoning'"),
            ({"age": "explode"}, "actions.age: input should be .*, got 'explode'"),
            ("flag", "actions: input should be a valid dictionary, got 'flag'"),
        ],
    )
    def test_a_mistake_is_one_sentence(self, given: object, message: str) -> None:
        with pytest.raises(ConfigError, match=message) as caught:
            policy_from({"actions": given})
        assert "\n" not in str(caught.value)

    def test_watching_takes_flags_alone(self) -> None:
        assert policy_from({"hold": "none", "actions": {"age": "flag"}}).hold == "none"
        with pytest.raises(ConfigError, match=r"actions\.age must be 'flag' or left out"):
            policy_from({"hold": "none", "actions": {"age": "redact"}})

    def test_text_that_could_not_be_judged_raises_where_its_channel_does(self) -> None:
        policy = policy_from({"actions": {"reasoning": "raise", "age": "raise"}})
        failed = unjudged_verdict("failure", detector="", index_version="", elapsed_ms=0)
        assert policy.action_on(failed, "reasoning") == "raise"
        assert policy.action_on(failed, "content") == "terminate"


@pytest.mark.parametrize(
    "name", ["message", "failure_message", "replacement", "rewrite_instruction"]
)
def test_a_text_with_half_a_character_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: input should be a valid string") as caught:
        Guard(detector=Scripted(), **{name: "Stopped \ud800"})
    assert "\n" not in str(caught.value)


def test_records_of_what_went_out_and_rewriting_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="litellm_records='guarded' cannot be combined with"):
        policy_from({"litellm_records": "guarded", "action": "rewrite"})
    with pytest.raises(ConfigError, match="combined with the action 'rewrite'"):
        policy_from({"litellm_records": "guarded", "actions": {"age": "rewrite"}})
