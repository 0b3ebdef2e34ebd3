from __future__ import annotations

import builtins
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from guard.errors import UsageError, WeightsError
from guard.local import model
from guard.local.adapter import (
    FILES,
    Adapter,
    AdapterBase,
    AdapterSettings,
    base_hash,
    is_adapter,
    read_adapter,
    sharing_copy,
    with_adapter,
    write_adapter,
    write_adapter_manifest,
)
from guard.local.model import LoadedModel, load_model


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Imports here, and not above, what would take seconds of every collection."""
    global torch
    import torch


IDS = [[5, 9, 77, 130, 21, 8]]


def logits(network: Any) -> Any:
    with torch.inference_mode():
        return network(input_ids=torch.tensor(IDS)).logits[0, -1]


@pytest.fixture(scope="module")
def base(folder: Path) -> LoadedModel:
    return load_model(str(folder))


@pytest.fixture(scope="module")
def trained(base: LoadedModel, folder: Path) -> Any:
    """A PEFT model whose adapter does something."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(3)
    config = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    network = get_peft_model(sharing_copy(base.network), config)
    for name, tensor in network.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(tensor, std=0.3)
    return network.eval()


@pytest.fixture(scope="module")
def settings(base: LoadedModel, folder: Path) -> AdapterSettings:
    return AdapterSettings(
        version="1.0",
        base=AdapterBase(str(folder), base_hash(base.network)),
        instruction={"references": True, "steps": False, "demonstrations": True},
        temperature=1.5,
        offset=-0.25,
        operating_points={"balanced": {"gender": 0.5, "race": 0.4}},
        k=3,
    )


@pytest.fixture(scope="module")
def written(
    trained: Any, settings: AdapterSettings, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    place = tmp_path_factory.mktemp("adapter") / "new"
    write_adapter(place, trained, settings, "# Card\n")
    return place


@pytest.fixture
def copied(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "adapter"))


def test_what_was_written_is_read_and_answers_as_trained(
    written: Path, trained: Any, settings: AdapterSettings, base: LoadedModel
) -> None:
    found = read_adapter(written)
    assert found.settings == settings
    assert sorted(p.name for p in written.iterdir()) == sorted([*FILES, "manifest.json"])
    tuned = with_adapter(base, found)
    assert torch.equal(logits(tuned.network), logits(trained))
    assert tuned.tokenizer is base.tokenizer


def test_the_base_answers_as_before_and_its_tensors_are_shared(
    written: Path, base: LoadedModel
) -> None:
    before, names = logits(base.network), list(base.network.state_dict())
    tuned = with_adapter(base, read_adapter(written))
    assert not torch.allclose(logits(tuned.network), before)
    assert torch.equal(logits(base.network), before)
    assert list(base.network.state_dict()) == names
    shared = {t.data_ptr() for t in base.network.parameters()}
    plain = {n: t for n, t in tuned.network.named_parameters() if "lora_" not in n}
    assert {t.data_ptr() for t in plain.values()} == shared
    assert not any(t.requires_grad for t in tuned.network.parameters())


def test_two_adapters_of_one_base_do_not_meet(
    written: Path, base: LoadedModel, settings: AdapterSettings, tmp_path: Path
) -> None:
    first = with_adapter(base, read_adapter(written))
    alone = logits(first.network)
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(8)
    network = get_peft_model(
        sharing_copy(base.network),
        LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False),
    )
    write_adapter(tmp_path / "second", network, settings, "")
    second = with_adapter(base, read_adapter(tmp_path / "second"))
    assert torch.equal(logits(first.network), alone)
    assert not torch.allclose(logits(second.network), alone)


def test_no_path_of_this_machine_is_written(written: Path, settings: AdapterSettings) -> None:
    config = json.loads((written / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == settings.base.name
    assert config["peft_type"] == "LORA"


def test_weights_may_be_written_in_half_the_size(
    trained: Any, settings: AdapterSettings, base: LoadedModel, written: Path, tmp_path: Path
) -> None:
    write_adapter(tmp_path, trained, settings, "", "bfloat16")
    sizes = [(p / "adapter_model.safetensors").stat().st_size for p in (tmp_path, written)]
    assert sizes[0] < 0.75 * sizes[1]
    tuned = with_adapter(base, read_adapter(tmp_path))
    assert torch.allclose(logits(tuned.network), logits(trained), atol=0.5)


def test_a_base_has_one_hash_in_both_types(folder: Path, base: LoadedModel) -> None:
    half = load_model(str(folder), "bfloat16")
    assert half.network.dtype == torch.bfloat16
    assert load_model(str(folder)) is base
    assert base_hash(half.network) == base_hash(base.network)


def test_a_base_of_the_same_shape_is_refused_before_it_answers(
    written: Path, base: LoadedModel
) -> None:
    other = sharing_copy(base.network)
    other.model.norm = type(base.network.model.norm)(16)
    with torch.no_grad():
        other.model.norm.weight[3] += 0.5
    with pytest.raises(WeightsError, match=r"trained on another base .*: use "):
        with_adapter(replace(base, network=other), read_adapter(written))


def test_a_base_of_another_shape_is_refused(written: Path, base: LoadedModel, folder: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig.from_pretrained(folder)
    config.num_hidden_layers = 1
    with pytest.raises(WeightsError, match="trained on another base"):
        with_adapter(replace(base, network=LlamaForCausalLM(config)), read_adapter(written))


@pytest.mark.parametrize("name", [*FILES, "manifest.json"])
def test_a_file_that_is_missing_is_named(copied: Path, name: str) -> None:
    (copied / name).unlink()
    with pytest.raises(WeightsError, match=name.replace(".", r"\.")):
        read_adapter(copied)


@pytest.mark.parametrize("name", FILES)
def test_a_pipe_in_place_of_a_file_is_not_waited_for(copied: Path, name: str) -> None:
    (copied / name).unlink()
    os.mkfifo(copied / name)
    with pytest.raises(WeightsError, match="Not a regular file"):
        read_adapter(copied)


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_short_is_not_the_recorded_one(copied: Path, name: str) -> None:
    data = (copied / name).read_bytes()
    (copied / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(WeightsError, match="is not the recorded one"):
        read_adapter(copied)


def test_weights_cut_short_before_they_were_recorded_are_refused(
    copied: Path, base: LoadedModel
) -> None:
    path = copied / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    write_adapter_manifest(copied)
    with pytest.raises(WeightsError, match="cannot be loaded"):
        with_adapter(base, read_adapter(copied))


def test_weights_with_a_tensor_too_few_are_refused(copied: Path, base: LoadedModel) -> None:
    from safetensors.torch import load_file, save_file

    path = copied / "adapter_model.safetensors"
    tensors = load_file(path)
    del tensors[min(tensors)]
    save_file(tensors, path)
    write_adapter_manifest(copied)
    with pytest.raises(WeightsError, match="does not go with"):
        with_adapter(base, read_adapter(copied))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 2}, "format 2"),
        ({"temperature": 0}, "temperature = 0"),
        ({"temperature": "warm"}, "incomplete"),
        ({"offset": 1e9}, "offset"),
        ({"base": "qwen"}, "incomplete"),
        ({"base": {"name": "", "hash": ""}}, "base"),
        ({"version": "1.0; rm"}, "version"),
        ({"instruction": {"steps": "no"}}, "instruction"),
        ({"operating_points": {}}, "operating_points"),
        ({"operating_points": {"balanced": {"age": 1.2}}}, "threshold of balanced for age = 1.2"),
        ({"k": -1}, "k = -1"),
    ],
)
def test_settings_that_none_can_have_are_named(
    copied: Path, change: dict[str, Any], said: str
) -> None:
    content = json.loads((copied / "guard.json").read_text())
    (copied / "guard.json").write_text(json.dumps(content | change))
    write_adapter_manifest(copied)
    with pytest.raises(WeightsError, match=said):
        read_adapter(copied)


def test_settings_out_of_range_are_not_written(
    trained: Any, settings: AdapterSettings, tmp_path: Path
) -> None:
    with pytest.raises(WeightsError, match="temperature"):
        write_adapter(tmp_path / "x", trained, replace(settings, temperature=-1.0), "")
    assert not (tmp_path / "x").exists()


def test_an_adapter_of_another_kind_is_refused(copied: Path) -> None:
    config = json.loads((copied / "adapter_config.json").read_text())
    (copied / "adapter_config.json").write_text(json.dumps(config | {"peft_type": "IA3"}))
    write_adapter_manifest(copied)
    with pytest.raises(WeightsError, match="of the kind 'IA3'; guard reads LoRA"):
        read_adapter(copied)


def test_without_peft_it_names_the_command(
    written: Path, base: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "peft":
            raise ImportError("No module named 'peft'", name="peft")
        return own(name, *args, **kwargs)

    adapter: Adapter = read_adapter(written)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        UsageError, match=r"Adapters need peft, which is not installed; run: .*local"
    ):
        with_adapter(base, adapter)


def test_a_folder_that_holds_part_of_an_adapter_counts_as_one(written: Path, folder: Path) -> None:
    assert is_adapter(written)
    assert not is_adapter(folder)


def test_a_folder_of_the_hubs_cache_is_found_by_its_id(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "models--who--tiny"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text("0" * 40)
    shutil.copytree(folder, place / "snapshots" / ("0" * 40))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(model, "_loaded", {})
    assert load_model("who/tiny").context == 1024
    with pytest.raises(WeightsError, match="cache of the Hugging Face hub"):
        load_model("who/other")


@pytest.mark.parametrize("kept", [0.5, 0.999])
def test_a_base_cut_short_is_one_sentence(folder: Path, tmp_path: Path, kept: float) -> None:
    place = Path(shutil.copytree(folder, tmp_path / "cut"))
    path = place / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * kept)])
    with pytest.raises(WeightsError, match="cannot be loaded"):
        load_model(str(place))
