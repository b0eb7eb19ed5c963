"""GcylonConfig: fields, presets, the environment, and errors that say the range."""

from __future__ import annotations

import inspect
import pickle
import warnings
from dataclasses import FrozenInstanceError, fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcylon_lab import Cluster, GcylonConfig, run_threads
from gcylon_lab import config as settings
from gcylon_lab.errors import ConfigError
from gcylon_lab.units import GIB, MIB

SEED_FIELDS = {
    "gpu_memory_limit": 0,
    "gpu_memory_fraction": 0.8,
    "chunk_size_bytes": 0,
    "min_chunk_rows": 1024,
    "allow_cpu_staging": True,
    "use_pinned_memory": True,
}


def test_the_first_six_fields_keep_their_names_order_and_defaults():
    assert {field.name: field.default for field in fields(GcylonConfig)[:6]} == SEED_FIELDS
    assert list(GcylonConfig().as_dict())[:6] == list(SEED_FIELDS)


def test_presets():
    assert GcylonConfig.default() == GcylonConfig()
    low = GcylonConfig.low_memory()
    assert low.gpu_memory_fraction == 0.6 and low.chunk_size_bytes == 4 * MIB and low.min_chunk_rows == 256
    high = GcylonConfig.high_throughput()
    assert high == GcylonConfig(gpu_memory_fraction=0.9, min_chunk_rows=65_536)
    assert high.limit_bytes(8 * GIB, 10 * GIB) == 8 * GIB, "what the engines started with is not passed"


def test_sizes_are_read_from_text():
    assert GcylonConfig(gpu_memory_limit="64MiB").gpu_memory_limit == 64 * MIB
    assert GcylonConfig(chunk_size_bytes="1 MB", host_memory_limit="2GiB").host_memory_limit == 2 * GIB


def test_it_is_frozen_and_takes_keywords_only():
    with pytest.raises(FrozenInstanceError):
        GcylonConfig().min_chunk_rows = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        GcylonConfig(1)  # type: ignore[misc]


def test_copies_with_changes():
    config = (
        GcylonConfig()
        .with_gpu_memory_limit("1GiB")
        .with_gpu_memory_fraction(0.25)
        .with_chunk_size_bytes("2MiB")
        .with_min_chunk_rows(7)
        .with_staging(allow_cpu_staging=False, allow_disk_spill=False)
        .with_pinned_memory(enabled=False)
        .with_host_memory_limit(5)
        .with_spill_dir("/scratch")
    )
    assert config.as_dict() == {
        "gpu_memory_limit": GIB,
        "gpu_memory_fraction": 0.25,
        "chunk_size_bytes": 2 * MIB,
        "min_chunk_rows": 7,
        "allow_cpu_staging": False,
        "use_pinned_memory": False,
        "host_memory_limit": 5,
        "spill_dir": "/scratch",
        "allow_disk_spill": False,
    }
    assert GcylonConfig() == GcylonConfig.default(), "the original is as it was"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"gpu_memory_limit": -1}, r"gpu_memory_limit=-1 is out of range \[0, "),
        ({"gpu_memory_limit": "plenty"}, "gpu_memory_limit: 'plenty' is not a size"),
        ({"gpu_memory_limit": True}, "a size for gpu_memory_limit, got True"),
        ({"gpu_memory_limit": 1.5}, "a size for gpu_memory_limit, got 1.5"),
        ({"gpu_memory_fraction": 0.0}, r"gpu_memory_fraction=0.0 is out of range \(0, 1\]"),
        ({"gpu_memory_fraction": 1.01}, r"is out of range \(0, 1\]"),
        ({"gpu_memory_fraction": float("nan")}, r"is out of range \(0, 1\]"),
        ({"gpu_memory_fraction": True}, r"is out of range \(0, 1\]"),
        ({"gpu_memory_fraction": "0.5"}, r"is out of range \(0, 1\]"),
        ({"chunk_size_bytes": 1023}, r"chunk_size_bytes=1023 is out of range \[1024, "),
        ({"min_chunk_rows": 0}, r"min_chunk_rows=0 is out of range \[1, "),
        ({"min_chunk_rows": 1.0}, "min_chunk_rows=1.0 is out of range"),
        ({"allow_cpu_staging": 1}, "allow_cpu_staging=1 is invalid. Expected True or False"),
        ({"use_pinned_memory": "yes"}, "use_pinned_memory='yes' is invalid. Expected True or False"),
        ({"allow_disk_spill": None}, "allow_disk_spill=None is invalid. Expected True or False"),
        ({"spill_dir": 3}, "a path for spill_dir, got 3"),
        ({"host_memory_limit": 2**63}, "host_memory_limit=9223372036854775808 is out of range"),
    ],
    ids=lambda value: "-".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else "",
)
def test_what_is_out_of_range_is_said_with_the_range(wrong, said):
    with pytest.raises(ConfigError, match=said):
        GcylonConfig(**wrong)
    with pytest.raises(ConfigError, match=said):
        GcylonConfig().with_values(**wrong)


def test_an_unknown_name_is_said_with_the_known_ones():
    with pytest.raises(ConfigError, match="There is no setting 'gpu_memory'. Did you mean gpu_memory_limit"):
        GcylonConfig().with_values(gpu_memory=1)


@pytest.mark.parametrize(
    ("short", "meant"),
    [("chunk", "chunk_size_bytes"), ("fraction", "gpu_memory_fraction"), ("disk", "allow_disk_spill"),
     ("pinned", "use_pinned_memory"), ("rows", "min_chunk_rows"), ("host_limit", "host_memory_limit")],
)  # fmt: skip
def test_a_shortened_name_is_told_its_long_one(short, meant):
    for make in (GcylonConfig().with_values, GcylonConfig):
        with pytest.raises(ConfigError, match=f"There is no setting '{short}'. Did you mean {meant}?"):
            make(**{short: 1})


def test_explicit_goes_before_the_environment_before_the_default():
    environ = {"GCYLON_GPU_MEMORY_LIMIT": "64MiB", "GCYLON_MIN_CHUNK_ROWS": "10", "OTHER": "1"}
    config = GcylonConfig.from_environment(environ, min_chunk_rows=20)
    assert (config.gpu_memory_limit, config.min_chunk_rows, config.gpu_memory_fraction) == (64 * MIB, 20, 0.8)


def test_the_process_environment_is_the_default_one(monkeypatch):
    monkeypatch.setenv("GCYLON_SPILL_DIR", "/scratch")
    assert GcylonConfig.from_environment().spill_dir == "/scratch"
    assert GcylonConfig().spill_dir == ""


@pytest.mark.parametrize(
    ("variable", "meant"),
    [("GPU_MEMORY_LIMT", "GPU_MEMORY_LIMIT"), ("MEMORY_LIMIT", "GPU_MEMORY_LIMIT"), ("SPILLDIR", "SPILL_DIR"),
     ("CHUNK", "CHUNK_SIZE_BYTES"), ("ENGINES", "ENGINE"), ("POISON_FRED", "POISON_FREED"), ("QQQ", "")],
)  # fmt: skip
def test_a_variable_that_nothing_reads_is_a_warning_with_the_one_that_was_meant(monkeypatch, variable, meant):
    monkeypatch.setattr(settings, "_told", set())
    environ = {f"GCYLON_{variable}": "7", "GCYLON_MIN_CHUNK_ROWS": "10", "GCYLON_ENGINE": "cpu", "GCYLON_LAB_HOME": ""}
    with pytest.warns(UserWarning, match=f"GCYLON_{variable} is set, but nothing reads it. ") as warned:
        assert GcylonConfig.from_environment(environ).min_chunk_rows == 10
    (said,) = [str(one.message) for one in warned]
    assert (f"Did you mean GCYLON_{meant}? Known are" if meant else "reads it. Known are GCYLON_GPU_MEMORY_") in said
    assert warned[0].filename == __file__


def test_a_process_warns_of_a_variable_once_and_one_rank_does(monkeypatch):
    monkeypatch.setattr(settings, "_told", set())
    monkeypatch.setenv("GCYLON_GPU_MEMORY_LIMT", "1GiB")
    with pytest.warns(UserWarning, match="GCYLON_GPU_MEMORY_LIMT is set") as warned:
        run_threads(3, lambda: None, config=GcylonConfig())
        run_threads(3, lambda: None)
        GcylonConfig.from_environment()
    assert len(warned) == 1


def test_what_is_read_is_no_warning():
    known = [f"GCYLON_{field.name.upper()}" for field in fields(GcylonConfig)] + list(settings.VARIABLES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        settings.warn_of_unread(dict.fromkeys(known, "") | {"OTHER_GCYLON": "", "GCYLONS": ""})


@pytest.mark.parametrize(("text", "value"), [("1", True), ("yes", True), ("On", True), ("0", False), ("FALSE", False)])
def test_bools_in_the_environment(text, value):
    assert GcylonConfig.from_environment({"GCYLON_ALLOW_DISK_SPILL": text}).allow_disk_spill is value


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("GCYLON_ALLOW_DISK_SPILL", "maybe"),
        ("GCYLON_GPU_MEMORY_FRACTION", "most"),
        ("GCYLON_CHUNK_SIZE_BYTES", "big"),
    ],
)
def test_a_wrong_variable_is_named(variable, text):
    with pytest.raises(ConfigError, match=f"The environment has {variable}='{text}'"):
        GcylonConfig.from_environment({variable: text})


def test_a_value_out_of_range_in_the_environment():
    with pytest.raises(ConfigError, match="gpu_memory_fraction=2.0 is out of range"):
        GcylonConfig.from_environment({"GCYLON_GPU_MEMORY_FRACTION": "2"})


@given(
    st.builds(
        GcylonConfig,
        gpu_memory_limit=st.integers(0, 2**62),
        gpu_memory_fraction=st.floats(0, 1, exclude_min=True),
        chunk_size_bytes=st.just(0) | st.integers(1024, 2**62),
        min_chunk_rows=st.integers(1, 2**31 - 1),
        allow_cpu_staging=st.booleans(),
        use_pinned_memory=st.booleans(),
        host_memory_limit=st.integers(0, 2**62),
        spill_dir=st.text(max_size=20),
        allow_disk_spill=st.booleans(),
    )
)
def test_every_config_survives_code_values_and_pickle(config):
    import gcylon_lab as gl

    assert eval(config.as_code(), {"gl": gl}) == config
    assert GcylonConfig(**config.as_dict()) == config
    assert pickle.loads(pickle.dumps(config)) == config


def test_code_shows_what_differs_only():
    assert GcylonConfig().as_code() == "gl.GcylonConfig()"
    assert GcylonConfig(gpu_memory_limit=96 * 2**20).as_code() == "gl.GcylonConfig(gpu_memory_limit='96MiB')"
    assert "chunk_size_bytes=5000)" in GcylonConfig(chunk_size_bytes=5000).as_code(), "what no unit says exactly"
    assert GcylonConfig(min_chunk_rows=5).as_code() == "gl.GcylonConfig(min_chunk_rows=5)"


@pytest.mark.parametrize(
    "make", [lambda **values: GcylonConfig(**values), lambda **values: GcylonConfig().with_values(**values)]
)
def test_a_mistyped_name_is_told_with_the_nearest_one(make):
    with pytest.raises(ConfigError, match="There is no setting 'gpu_memry_limit'. Did you mean gpu_memory_limit"):
        make(gpu_memry_limit=1)
    with pytest.raises(ConfigError, match="There is no setting 'zzz'. The settings are"):
        make(zzz=1)


def test_the_signature_still_names_the_fields():
    assert list(inspect.signature(GcylonConfig).parameters) == [field.name for field in fields(GcylonConfig)]


@pytest.mark.parametrize("limit", [1, 32, 4095])
def test_a_limit_in_another_unit_is_refused_where_ranks_would_work_in_it(limit):
    with pytest.raises(ConfigError, match=f"{limit} bytes hold nothing. Write '{limit}MiB' for {limit} MiB"):
        Cluster(1, config=GcylonConfig(gpu_memory_limit=limit))
    with pytest.raises(ConfigError, match=f"{limit} bytes hold nothing"):
        Cluster(1, env={"GCYLON_GPU_MEMORY_LIMIT": str(limit)})
    settings.check_limit(GcylonConfig(gpu_memory_limit=4096))
    settings.check_limit(GcylonConfig())
