"""Files from elsewhere and from before: data is all that is taken from them, and damage ends in one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

import twolayer as tl
from twolayer.cli import main

OLD = Path(__file__).parent / "data" / "result-0.1.nc"
"""Written by version 0.1.0, format twolayer/1: this file is never written again."""


@pytest.fixture(scope="module")
def run() -> xr.Dataset:
    problem, start = (
        tl.Problem("He2(z1)", "He2", noise=0.1),
        tl.Overlaps([[1.0]], [[0.5]]),
    )
    return tl.solve(
        problem,
        tl.SGD("0.1/d", geometry="projected"),
        tl.Chain(50),
        start,
        steps=8,
        save=4,
        seeds=2,
    )


@pytest.mark.slow
def test_a_file_of_0_1_is_still_read() -> None:
    old = tl.load(OLD)
    assert isinstance(old, xr.Dataset)
    assert old.attrs["schema"] == "twolayer/1"
    assert json.loads(old.attrs["versions"])["twolayer"] == "0.1.0"
    assert old.M.shape == (2, 5, 1, 1)
    again = tl.rerun(old)
    np.testing.assert_allclose(again.M, old.M, rtol=1e-12)
    assert tl.plot.trajectory(old).axes
    assert "twolayer" in tl.cite(old)


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        (
            {"schema": "twolayer/2"},
            "has the format twolayer/2, but this version reads twolayer/1: update twolayer",
        ),
        ({"schema": "other/1"}, "has no such description"),
        ({"schema": 3}, "has no such description"),
        ({"description": "{"}, "damaged or foreign"),
        ({"description": "[]"}, "damaged or foreign"),
        ({"description": '{"problem": {}}'}, "damaged or foreign"),
        ({"papers": "{}"}, "damaged or foreign: TypeError 'papers'"),
    ],
)
def test_other_versions_and_foreign_files(
    attrs: dict[str, Any], message: str, run: xr.Dataset, tmp_path: Path
) -> None:
    run.assign_attrs(attrs).to_netcdf(tmp_path / "x.nc", engine="h5netcdf")
    with pytest.raises(tl.InputError, match=message):
        tl.load(tmp_path / "x.nc")


def described(run: xr.Dataset, change: Any) -> xr.Dataset:
    """The run with another description."""
    told = json.loads(run.attrs["description"])
    change(told)
    return run.assign_attrs(description=json.dumps(told))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda told: told["problem"].update(extra=1), "`extra`"),
        (
            lambda told: told["problem"].update(
                target="__import__('os').system('true')"
            ),
            "`target`: cannot read the expression",
        ),
        (
            lambda told: told["problem"].update(activation="<function f>"),
            "was a Python function",
        ),
        (lambda told: told["method"].update(name="os.system"), "is not known here"),
        (lambda told: told["method"].update(dim=10**30), "`dim` must be less than"),
        (
            lambda told: told["algorithm"].update(lr="lambda: 0"),
            "`lr`: cannot read the expression",
        ),
        (lambda told: told["algorithm"].pop("lr"), "KeyError 'lr'"),
        (lambda told: told["run"].update(seed=-1), "`seed` must be an integer"),
        (lambda told: told["run"].update(seeds=10**12), "This run would hold about"),
        (lambda told: told["run"].update(first="x"), "`first` must be an integer"),
        (
            lambda told: told["run"].update(until=["risk", "x", False]),
            "`value` must be a number",
        ),
    ],
)
def test_a_hostile_description_is_not_run(
    change: Any, why: str, run: xr.Dataset
) -> None:
    """Each is refused for what is wrong with it, not for something else."""
    with pytest.raises(tl.InputError) as caught:
        tl.rerun(described(run, change))
    assert why in str(caught.value) and "\n" not in str(caught.value)


def test_sizes_are_checked_before_memory_is_taken(
    run: xr.Dataset, tmp_path: Path
) -> None:
    path = tmp_path / "x.nc"
    tl.save(run, path)
    with h5py.File(path, "a") as file:
        file.create_dataset("huge", (2**40,), "f8", chunks=(2**16,), compression="gzip")
    assert path.stat().st_size < 10**5
    with pytest.raises(tl.InputError, match=r"declares .* GiB of data in"):
        tl.load(path)


def test_links_that_lead_out_of_a_file(run: xr.Dataset, tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    tl.save(run, tmp_path / "other.nc")
    for link in (h5py.ExternalLink("other.nc", "/M"), h5py.SoftLink("/M")):
        tl.save(run, path)
        with h5py.File(path, "a") as file:
            file["stray"] = link
        with pytest.raises(tl.InputError, match="leads elsewhere"):
            tl.load(path)
    tl.save(run, path)
    with h5py.File(path, "a") as file:
        file.create_dataset(
            "outside", (3,), "f8", external=[(str(tmp_path / "raw"), 0, 24)]
        )
    with pytest.raises(tl.InputError, match="stored elsewhere"):
        tl.load(path)


def test_cut_files_end_in_a_sentence(
    run: xr.Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tl.save(run, tmp_path / "x.nc")
    whole = path.read_bytes()
    for size in (0, 8, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        for command in ("plot", "rerun", "cite"):
            assert main([command, str(path)]) == 2
            said = capsys.readouterr().err
            assert said.startswith("twolayer: The file ")
            assert said.count("\n") == 1


def test_variables_that_are_not_there_or_of_another_kind(run: xr.Dataset) -> None:
    for spoilt in (run.drop_vars("M"), run.assign(risk=run.risk.astype(str)), run.assign(M=run.M.transpose()),
                   run.isel(time=slice(0)), run.assign(outcome=("seed", ["fine", "ok"]))):  # fmt: skip
        with pytest.raises(tl.InputError, match="damaged or foreign"):
            tl.plot.trajectory(spoilt)
    assert tl.plot.trajectory(run).axes  # the untouched one is drawn


@pytest.mark.slow
def test_stores_say_their_format_and_stay_inside(tmp_path: Path) -> None:
    problem, algorithm = (
        tl.Problem("He2(z1)", "He2"),
        tl.SGD("0.1/d", geometry="projected"),
    )
    path = tmp_path / "x.zarr"
    tl.sweep(
        problem,
        algorithm,
        tl.Chain(20),
        {"method.dim": [20, 40]},
        steps=4,
        seeds=2,
        store=path,
        progress=False,
    )
    good = (path / "zarr.json").read_text()
    assert json.loads(good)["attributes"]["twolayer"]["format"] == "twolayer-sweep/2"

    def refused(change: Any, message: str) -> None:
        document = json.loads(good)
        change(document["attributes"]["twolayer"])
        (path / "zarr.json").write_text(json.dumps(document))
        with pytest.raises(tl.InputError, match=message):
            tl.load(path)

    refused(lambda x: x.update(format="twolayer-sweep/3"), "update twolayer")
    refused(
        lambda x: x["variables"].update({"../../stray": x["variables"]["risk"]}),
        "the name",
    )
    refused(lambda x: x["variables"]["risk"].update(dtype="O"), "the kind of an array")
    refused(lambda x: x.update(seeds=10**15), "more than half of the")
    refused(lambda x: x.pop("axes"), "damaged or foreign")
    (path / "zarr.json").write_text(good)
    assert tl.load(path).sizes["seed"] == 2


def test_filters_that_hdf5_does_not_bring_are_refused(
    run: xr.Dataset, tmp_path: Path
) -> None:
    """A filter is code that HDF5 loads from elsewhere: LZF can be read here, and is refused all the same."""
    path = tmp_path / "x.nc"
    tl.save(run, path)
    with h5py.File(path, "a") as file:
        file.create_dataset(
            "extra", data=np.resize(file["M"][()], 4096), compression="lzf"
        )
    with pytest.raises(tl.InputError, match="stored elsewhere"):
        tl.load(path)
