"""Files: rights, links, sizes and kinds, before anything is read or replaced."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import stat
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

import twolayer as tl
from twolayer.cli.stopping import Requests
from twolayer.files.data_rows import read_rows
from twolayer.loops.checkpoint import Checkpoint
from twolayer.numerics import compilation
from twolayer.numerics.writing import check_writable, put_file, write_atomically

TASK = (tl.Problem("z1", "linear"), tl.SGD(lr="0.5/d"), tl.Chain(20))
START = tl.Overlaps([[1.0]], [[0.0]])
RUN: dict[str, Any] = {"steps": 4, "save": 4, "seeds": 3}


def solve(**more: Any) -> xr.Dataset:
    return tl.solve(*TASK, START, **{**RUN, **more})


@pytest.fixture(scope="module")
def run() -> xr.Dataset:
    return solve()


@pytest.fixture
def mask() -> Iterator[Callable[[int], int]]:
    before = os.umask(0o022)
    os.umask(before)
    yield os.umask
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# -- rights and links -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [0o077, 0o002, 0o027])
def test_new_files_have_the_rights_of_the_umask(
    bits: int, mask: Any, run: xr.Dataset, tmp_path: Path
) -> None:
    mask(bits)
    assert mode(tl.save(run, tmp_path / "run.nc")) == 0o666 & ~bits
    solve(checkpoint=tmp_path / "run.npz")
    assert mode(tmp_path / "run.npz") == 0o666 & ~bits
    tl.sweep(
        *TASK,
        {"method.dim": [20]},
        steps=2,
        seeds=2,
        store=tmp_path / "s.zarr",
        progress=False,
    )
    for path in [tmp_path / "s.zarr", *(tmp_path / "s.zarr").rglob("*")]:
        assert mode(path) == (0o777 if path.is_dir() else 0o666) & ~bits, path


@pytest.mark.parametrize("bits", [0o600, 0o640, 0o664])
def test_files_that_are_replaced_keep_their_mode(
    bits: int, run: xr.Dataset, tmp_path: Path
) -> None:
    path = tmp_path / "run.nc"
    path.write_text("old")
    path.chmod(bits)
    tl.save(run, path)
    assert mode(path) == bits
    assert tl.load(path).identical(run)


@pytest.mark.parametrize("there", [True, False])
def test_links_are_followed(there: bool, run: xr.Dataset, tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    far, link = tmp_path / "far" / "data.nc", tmp_path / "run.nc"
    if there:
        far.write_text("old")
    link.symlink_to(far)
    tl.save(run, link)
    assert link.is_symlink() and not far.is_symlink()
    assert tl.load(far).identical(run)
    assert [x.name for x in (tmp_path / "far").iterdir()] == ["data.nc"]


def test_devices_and_pipes_are_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.npz")
    for path in (tmp_path / "x.npz", Path(os.devnull)):
        with pytest.raises(tl.InputError, match="is a device or a pipe"):
            write_atomically(path, "x")
        with pytest.raises(tl.InputError, match="is a device or a pipe"):
            check_writable(path)
    with pytest.raises(tl.InputError, match="is a device or a pipe"):
        solve(checkpoint=tmp_path / "x.npz")


@pytest.mark.parametrize("call", ["open", "write", "fsync", "replace"])
def test_a_fault_leaves_the_old_file_and_a_sentence(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.txt"
    path.write_text("old")

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(
            errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path / ".x-draft")
        )

    class Full(io.BytesIO):
        write = full

    with monkeypatch.context() as during:
        if call == "write":
            fdopen = os.fdopen
            during.setattr(os, "fdopen", lambda *_: (fdopen(*_).close(), Full())[1])
        else:
            during.setattr(os, call, full)
        with pytest.raises(
            OSError, match=r"x.txt' could not be written \(No space left on device\)$"
        ) as found:
            write_atomically(path, "new")
    assert found.value.errno == errno.ENOSPC and "draft" not in str(found.value)
    assert [x.name for x in tmp_path.iterdir()] == [
        "x.txt"
    ] and path.read_text() == "old"


def test_content_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def renamed(*paths: Any) -> None:
        done.append("rename")
        replace(*paths)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    put_file(tmp_path / "x", b"content")
    assert done == ["file", "rename", "folder"]


# -- checkpoints ------------------------------------------------------------------------------------------------------


def test_the_end_of_a_run_is_kept_until_it_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = tmp_path / "run.npz", tmp_path / "other.nc"
    first = solve(checkpoint=path)
    assert path.exists()  # nobody has saved anything
    with monkeypatch.context() as during:
        during.setattr(
            Checkpoint, "_put", None
        )  # nothing is computed, so that nothing is kept
        again = solve(checkpoint=path)
    assert again.identical(first)
    tl.save(again.isel(seed=[0]), other)
    assert path.exists()  # a part of it
    tl.save(solve(seed=1), other)
    assert path.exists()  # another one
    tl.save(again, tmp_path / "run.nc")
    assert not path.exists()
    assert tl.load(tmp_path / "run.nc").identical(solve())


def test_the_end_of_another_run_gives_way(tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    first = solve(checkpoint=path)
    second = solve(checkpoint=path, seed=1)
    assert not second.identical(first) and second.identical(solve(seed=1))
    tl.save(first, tmp_path / "run.nc")
    assert path.exists()  # it is the second one's now
    tl.save(second, tmp_path / "run.nc")
    assert not path.exists()


def test_a_result_outlives_a_checkpoint_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as during:
        during.setattr(os, "fsync", full)
        assert solve(checkpoint=tmp_path / "run.npz").identical(solve())
    assert list(tmp_path.iterdir()) == []


def archive(path: Path, **headers: bytes) -> None:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in headers.items():
            file.writestr(f"{name}.npy", content)


def declaring(n: int) -> bytes:
    """An array of n numbers, without them."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": (n,)}
    )
    return header.getvalue() + bytes(64)


def test_archives_that_declare_what_they_do_not_hold(tmp_path: Path) -> None:
    archive(tmp_path / "run.npz", format=declaring(2**36), key=declaring(2**36))
    with pytest.raises(tl.InputError, match="declares another size than it has"):
        solve(checkpoint=tmp_path / "run.npz")
    archive(tmp_path / "rows.npz", X=declaring(2**36), y=declaring(2**36))
    with pytest.raises(tl.InputError, match="declares another size than it has"):
        read_rows(tmp_path / "rows.npz")
    np.savez_compressed(
        tmp_path / "rows.npz", X=np.zeros((3000, 1000)), y=np.zeros(3000)
    )  # 1000 times smaller
    assert read_rows(tmp_path / "rows.npz")[0].shape == (3000, 1000)


def packed(how: int) -> bytes:
    file, array = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array(array, np.arange(500.0))
    with zipfile.ZipFile(file, "w", how) as all_of_it:
        for name in ("X", "y", "format", "key"):
            all_of_it.writestr(f"{name}.npy", array.getvalue())
    return file.getvalue()


def encrypted(data: bytes) -> bytes:
    """The flags say so, in front of every part and in the list at the end."""
    changed = bytearray(data)
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = changed.find(mark)
        while at >= 0:
            changed[at + place] |= 1
            at = changed.find(mark, at + 1)
    return bytes(changed)


def turned(data: bytes) -> bytes:
    return data[:60] + bytes(255 - x for x in data[60:90]) + data[90:]


ARCHIVES = {
    "bzip2": packed(zipfile.ZIP_BZIP2),
    "lzma": turned(packed(zipfile.ZIP_LZMA)),
    "encrypted": encrypted(packed(zipfile.ZIP_STORED)),
    "damaged": turned(packed(zipfile.ZIP_DEFLATED)),
    "cut": packed(zipfile.ZIP_STORED)[300:],
}


@pytest.mark.parametrize("kind", ARCHIVES)
def test_archives_that_numpy_does_not_write(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(ARCHIVES[kind])
    with pytest.raises(tl.InputError, match="A file of rows must") as told:
        read_rows(path)
    assert len(str(told.value)) <= 300
    with pytest.raises(tl.InputError, match="damaged or foreign"):
        solve(checkpoint=path)


# -- results of strangers ---------------------------------------------------------------------------------------------


def spoilt(run: xr.Dataset, path: Path, spoil: Callable[[h5py.File], None]) -> Path:
    tl.save(run, path)
    with h5py.File(path, "r+") as file:
        spoil(file)
    return path


def inflating(file: h5py.File) -> None:
    del file["lr"]
    packed = file.create_dataset("lr", (5,), "f8", chunks=(5,), compression="gzip")
    packed.id.write_direct_chunk((0,), zlib.compress(bytes(10**8)))


def large_chunk(file: h5py.File) -> None:
    del file["lr"]
    file.create_dataset("lr", (5,), "f8", chunks=(10**8,), maxshape=(None,))


def compound(file: h5py.File) -> None:
    del file["lr"]
    file.create_dataset("lr", (5,), np.dtype([("x", "f8")]))


def references(file: h5py.File) -> None:
    del file["lr"]
    file.create_dataset("lr", (5,), h5py.ref_dtype)


def long_list(file: h5py.File) -> None:
    file["lr"].attrs["words"] = ["x" * 100] * 65


def scaled(file: h5py.File) -> None:
    file["lr"].attrs["scale_factor"] = 2.0


def filled(file: h5py.File) -> None:
    file["seed"].attrs["_FillValue"] = file["seed"].dtype.type(3)


def words_in_parts(file: h5py.File) -> None:
    word = np.dtype([("text", h5py.string_dtype())])
    file.attrs.create("words", np.array([("x",)] * 3, word))


def lists(file: h5py.File) -> None:
    several = np.empty(2, object)
    several[:] = [np.arange(3), np.arange(4)]
    file.attrs.create("lists", several, dtype=h5py.vlen_dtype(np.int64))


def many_axes(file: h5py.File) -> None:
    """One axis that says a thousand times to which coordinate it belongs."""
    known = file["risk"].attrs["DIMENSION_LIST"]
    del file["risk"].attrs["DIMENSION_LIST"]
    several = np.empty(len(known), object)
    for i, own in enumerate(known):
        several[i] = np.array(list(own) * (1000 if i == 0 else 1), h5py.ref_dtype)
    kind = h5py.vlen_dtype(h5py.ref_dtype)
    file["risk"].attrs.create("DIMENSION_LIST", several, dtype=kind)


def nearly_nothing(file: h5py.File) -> None:
    """Half of 256 MiB of which not a byte is in the file."""
    file.create_dataset("more", (2**27,), "i1", chunks=(2**20,))


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (scaled, "'lr' is to be unpacked"),
        (filled, "'seed' is to be unpacked"),
        (words_in_parts, "the kind of the attribute 'words"),
        (lists, "the kind of the attribute 'lists"),
        (many_axes, "the axes of '/risk"),
        (nearly_nothing, "declares 0.125 GiB of data"),
        (inflating, "inflates beyond its size"),
        (large_chunk, "declares 0.745 GiB of data"),
        (compound, "the kind of 'lr"),
        (references, "the kind of 'lr"),
        (long_list, "the list of texts 'words"),
    ],
)
def test_what_twolayer_does_not_write_is_not_read(
    spoil: Any, why: str, run: xr.Dataset, tmp_path: Path
) -> None:
    """A file without its lr is refused anyhow, but not for this."""
    with pytest.raises(tl.InputError, match=why):
        tl.load(spoilt(run, tmp_path / "x.nc", spoil))


def test_one_text_that_stands_for_thousands(tmp_path: Path) -> None:
    """4000 references to one text of a megabyte are 4 GB in memory, and 1 MB in the file."""
    path, count = tmp_path / "x.nc", 4000
    with h5py.File(path, "w") as file:
        file.attrs["schema"] = "twolayer/1"
        texts = file.create_dataset("outcome", (count,), h5py.string_dtype())
        texts[0] = "x" * 10**6
        file.flush()
        place = texts.id.get_offset()
    data = bytearray(path.read_bytes())
    data[place : place + 16 * count] = data[place : place + 16] * count
    assert struct.unpack_from("<I", data, place) == (10**6,)
    path.write_bytes(data)
    with pytest.raises(tl.InputError, match="which is not how twolayer writes"):
        tl.load(path)


def test_what_others_write_with_the_same_contents_is_read(
    run: xr.Dataset, tmp_path: Path
) -> None:
    """Compressed, with checksums, texts in several dimensions, and truth values."""
    more = run.assign(
        flag=("seed", [True, False, True]),
        words=(("seed", "x"), [["a", "βγ"]] * 3),
        one="text",
    )
    more.attrs["list"] = ["a", "b"]
    packed = {
        name: {"zlib": True, "fletcher32": True, "chunksizes": more[name].shape}
        for name in ("M", "risk")
    }
    more.to_netcdf(
        tmp_path / "x.nc",
        engine="h5netcdf",
        encoding={**packed, "outcome": {"zlib": True}},
    )
    assert tl.load(tmp_path / "x.nc").equals(more)


# -- stores of strangers ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "s.zarr"
    again(path, [20, 40])
    return path


def copied(store: Path, folder: Path) -> Path:
    import shutil

    return Path(shutil.copytree(store, folder / "s.zarr"))


def parts(path: Path) -> dict[str, Path]:
    entry = next(x for x in (path / "journal").glob("*.json") if x.name != "zarr.json")
    return {
        "chunk": path / "risk" / "c.0.0",
        "entry": entry,
        "header": path / "zarr.json",
    }


def as_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("spoil", [as_device, as_pipe])
@pytest.mark.parametrize("part", ["chunk", "entry", "header"])
def test_links_and_pipes_in_a_store_are_not_read(
    part: str, spoil: Any, store: Path, tmp_path: Path
) -> None:
    path = copied(store, tmp_path)
    spoil(parts(path)[part])
    with pytest.raises(
        tl.InputError, match=r"is no plain file|must be a sweep of twolayer"
    ):
        tl.load(path)


def again(path: Path, dims: list[int]) -> xr.Dataset:
    over = {"method.dim": dims}
    return tl.sweep(*TASK, over, steps=2, seeds=2, store=path, progress=False)


@pytest.mark.parametrize("spoil", [as_device, as_pipe])
@pytest.mark.parametrize("part", ["zarr.json", "c/0"])
def test_coordinates_are_not_read_through_links_and_pipes(
    part: str, spoil: Any, store: Path, tmp_path: Path
) -> None:
    path = copied(store, tmp_path)
    spoil(path / "method.dim" / part)
    with pytest.raises(tl.InputError, match="is no plain file"):
        again(path, [20, 40])


def test_coordinates_of_a_stranger_are_not_unpacked(
    store: Path, tmp_path: Path
) -> None:
    """They declare 128 GiB; what belongs there is written in their place."""
    path = copied(store, tmp_path)
    described = path / "method.dim" / "zarr.json"
    good = described.read_bytes()
    document = json.loads(good)
    document["shape"] = document["chunk_grid"]["configuration"]["chunk_shape"] = [2**34]
    described.write_text(json.dumps(document))
    assert again(path, [20, 40]).runs.values.tolist() == [2, 2]
    assert described.read_bytes() == good


@pytest.mark.parametrize("name", ["risk", "method.dim", "method.dim/c"])
def test_folders_of_a_store_do_not_lead_out_of_it(
    name: str, store: Path, tmp_path: Path
) -> None:
    path, far = copied(store, tmp_path), tmp_path / "far"
    (path / name).rename(far)
    (path / name).symlink_to(far)
    (far / "mine.partial").touch()
    if name == "method.dim/c":
        (far / "0").unlink()
    before = {file: file.stat().st_mtime_ns for file in far.rglob("*")}
    with pytest.raises(tl.InputError, match="leads elsewhere"):
        again(path, [20, 40])
    assert {file: file.stat().st_mtime_ns for file in far.rglob("*")} == before


def test_drafts_outside_of_a_store_are_left_alone(store: Path, tmp_path: Path) -> None:
    path, far = copied(store, tmp_path), tmp_path / "far"
    far.mkdir()
    (far / "mine.partial").touch()
    (path / "more").symlink_to(far)
    again(path, [20, 40])
    assert (far / "mine.partial").exists()


def test_a_header_that_is_nested_too_deeply(store: Path, tmp_path: Path) -> None:
    path = copied(store, tmp_path)
    (path / "zarr.json").write_text("[" * 200_000)
    with pytest.raises(tl.InputError, match="must be a sweep of twolayer"):
        tl.load(path)


def test_sparse_and_foreign_parts_of_a_store(store: Path, tmp_path: Path) -> None:
    path = copied(store, tmp_path)
    os.truncate(
        parts(path)["chunk"], 2**33
    )  # not read: the runs are there to be computed again
    found = tl.load(path)
    assert found.runs.values.tolist() == [0, 2]
    lock = path / "journal" / "lock"
    lock.unlink()
    lock.mkdir()
    with pytest.raises(tl.InputError, match="The lock of a store must be a plain file"):
        again(path, [20, 40])
    lock.rmdir()
    codecs = path / "risk" / "zarr.json"
    codecs.write_text(codecs.read_text().replace('"name": "bytes"', '"name": "gzip"'))
    with pytest.raises(tl.InputError, match="the codecs of risk"):
        again(path, [20, 40])
    os.truncate(parts(path)["entry"], 2**33)
    with pytest.raises(tl.InputError, match="larger than twolayer writes it"):
        tl.load(path)


def test_a_store_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "s.zarr").symlink_to(tmp_path / "far.zarr")
    tl.sweep(
        *TASK,
        {"method.dim": [20]},
        steps=2,
        seeds=2,
        store=tmp_path / "s.zarr",
        progress=False,
    )
    assert (tmp_path / "s.zarr").is_symlink() and (
        tmp_path / "far.zarr" / "zarr.json"
    ).exists()


# -- the cache of compiled code ---------------------------------------------------------------------------------------


def settle(folder: Path) -> list[str]:
    """What is said when the cache is set up; [] where it is used."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        used = compilation._usable(folder / "jax-0")
    assert used is not bool(said)
    return [str(warning.message) for warning in said]


def test_the_cache_is_ours_alone(mask: Any, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    mask(0o022)
    assert settle(folder) == []
    (inner,) = folder.iterdir()
    assert (mode(folder), mode(inner)) == (0o700, 0o700)
    inner.chmod(0o755)  # as it was made before
    assert settle(folder) == [] and mode(inner) == 0o700
    for open_one in (inner, folder):
        open_one.chmod(0o777)
        (said,) = settle(folder)
        assert "others than you can write" in said
        open_one.chmod(0o700)
    assert settle(folder) == []


@pytest.mark.skipif(
    os.name != "posix" or os.geteuid() != 0,
    reason="only the superuser gives folders away",
)
def test_the_cache_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    assert settle(folder) == []
    (inner,) = folder.iterdir()
    for one in (inner, folder):
        os.chown(one, 12345, 12345)
        (said,) = settle(folder)
        assert "others than you can write" in said
        os.chown(one, 0, 0)


# -- requests to end --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "ends"),
    [
        (
            [(signal.SIGTERM, 0.0), (signal.SIGTERM, 0.3)],
            [False, False],
        ),  # as timeout sends them
        (
            [(signal.SIGTERM, 0.0), (signal.SIGTERM, 0.3), (signal.SIGTERM, 1.5)],
            [False, False, True],
        ),
        ([(signal.SIGINT, 0.0), (signal.SIGINT, 0.05)], [False, True]),
        ([(signal.SIGTERM, 0.0), (signal.SIGINT, 0.05)], [False, True]),
    ],
)
def test_sigterm_twice_within_a_second_is_one(
    sent: list[tuple[int, float]], ends: list[bool]
) -> None:
    requests = Requests()
    assert [requests.again(*one) for one in sent] == ends


@pytest.mark.parametrize("name", ["rows.csv", "rows.npz"])
@pytest.mark.parametrize("what", ["pipe", "device", "folder"])
def test_rows_come_from_a_file(name: str, what: str, tmp_path: Path) -> None:
    """A pipe would be waited for, and a device read until memory is full."""
    path = tmp_path / name
    if what == "pipe":
        os.mkfifo(path)
    elif what == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    with pytest.raises(tl.InputError, match=r"must be a file, but .* a pipe"):
        read_rows(path)
