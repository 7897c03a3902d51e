import hashlib
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from diva.data import get_dataset
from diva.data.datasets import download
from diva.data.datasets.download import download_file
from diva.data.datasets.registry import REGISTRY, DataFile
from diva.exceptions import DownloadError

CONTENT = np.random.default_rng(0).bytes(700_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
MD5 = hashlib.md5(CONTENT).hexdigest()


@dataclass
class Site:
    """A small server: what it holds, how it misbehaves, and what it was asked."""

    files: dict[str, bytes] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)  # bytes after which it breaks off, one for each answer
    understands_range: bool = True
    says_length: bool = True
    n_sent: int = 0
    ranges: list[str | None] = field(default_factory=list)
    address: str = ""


@pytest.fixture
def site():
    site = Site({"/file.bin": CONTENT})

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def do_GET(self):
            site.ranges.append(self.headers.get("Range"))
            content = site.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            start = 0
            if site.understands_range and self.headers.get("Range"):
                start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
                if start >= len(content):
                    self.send_error(416)
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            else:
                self.send_response(200)
            if site.says_length:
                self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            cut = site.cuts.pop(0) if site.cuts else len(content)
            for first in range(start, min(start + cut, len(content)), 10_000):
                try:
                    self.wfile.write(content[first : min(first + 10_000, start + cut)])
                except OSError:  # nobody listens any more
                    return
                site.n_sent += 10_000

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    site.address = f"http://127.0.0.1:{server.server_port}"
    yield site
    server.shutdown()
    server.server_close()
    thread.join()


def remote(site, **known):
    return DataFile("file.bin", f"{site.address}/file.bin", **known)


def test_download_with_progress(site, tmp_path):
    seen = []
    target = tmp_path / "folder" / "file.bin"
    download_file(
        remote(site, sha256=SHA256, size=len(CONTENT)), target, on_progress=lambda done, total: seen.append((done, total))
    )
    assert target.read_bytes() == CONTENT
    assert [path.name for path in target.parent.iterdir()] == ["file.bin"]
    assert seen[0] == (0, len(CONTENT))
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert seen == sorted(seen)


def test_broken_connection_goes_on(site, tmp_path):
    site.cuts = [300_000, 200_000]
    download_file(remote(site, md5=MD5), tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert site.ranges == [None, "bytes=300000-", "bytes=500000-"]


def test_given_up_then_resumed(site, tmp_path):
    site.cuts = [100_000] * 3
    target = tmp_path / "file.bin"
    with pytest.raises(DownloadError, match="the connection broke after 300,000 of 700,000 bytes") as caught:
        download_file(remote(site, sha256=SHA256), target)
    assert f"save {site.address}/file.bin as {target}" in str(caught.value)
    assert not target.exists()
    assert (tmp_path / "file.bin.part").stat().st_size == 300_000
    download_file(remote(site, sha256=SHA256), target)
    assert target.read_bytes() == CONTENT
    assert site.ranges[-1] == "bytes=300000-"
    assert not (tmp_path / "file.bin.part").exists()


def test_server_without_ranges_starts_anew(site, tmp_path):
    site.understands_range = False
    site.cuts = [300_000]
    download_file(remote(site, sha256=SHA256), tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_server_that_says_no_length(site, tmp_path):
    site.says_length = False
    seen = []
    download_file(remote(site, sha256=SHA256), tmp_path / "file.bin", on_progress=lambda done, total: seen.append(total))
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert set(seen) == {None}


@pytest.mark.parametrize("known", [{"sha256": "0" * 64}, {"md5": "0" * 32}, {"size": 5}], ids=["sha256", "md5", "size"])
def test_another_file_is_not_kept(site, tmp_path, known):
    with pytest.raises(DownloadError, match=r"is not the published file\.bin: expected"):
        download_file(remote(site, **known), tmp_path / "file.bin")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("says_length", [True, False])
def test_a_file_that_is_too_large_is_not_fetched_to_its_end(site, tmp_path, says_length):
    site.files["/file.bin"] = bytes(30_000_000)
    site.says_length = says_length
    most = []
    with pytest.raises(DownloadError, match=r"is not the published file\.bin: expected 700,000 bytes, got [\d,]+"):
        download_file(
            remote(site, sha256=SHA256, size=len(CONTENT)), tmp_path / "file.bin", on_progress=lambda done, _: most.append(done)
        )
    assert max(most, default=0) <= len(CONTENT)
    assert site.n_sent < 20_000_000
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_unknown_size_may_not_be_endless(site, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "LARGEST", 500_000)
    site.says_length = False
    with pytest.raises(DownloadError, match="expected at most 500,000 bytes"):
        download_file(remote(site), tmp_path / "file.bin")
    assert list(tmp_path.iterdir()) == []


def test_data_sets_come_over_https():
    """But SVHN, whose university is not known to serve it so; a checksum proves what comes over plain http."""
    files = [file for info in REGISTRY.values() for layout in info.layouts for file in layout.files if file.url]
    plain = [file for file in files if not file.url.startswith("https://")]
    assert {file.filename for file in plain} == {"train_32x32.mat", "test_32x32.mat"}
    assert all(file.has_checksum for file in plain)


@pytest.mark.parametrize(("begin", "end", "may"), [("https", "https", True), ("https", "http", False), ("http", "http", True)])
def test_a_secure_address_is_not_left_for_another(begin, end, may):
    request = urllib.request.Request(f"{begin}://one.example/file.bin")
    details = (None, 302, "Found", {}, f"{end}://other.example/file.bin")
    if may:
        assert download.StaysSecure().redirect_request(request, *details).full_url == f"{end}://other.example/file.bin"
    else:
        with pytest.raises(urllib.error.URLError, match="sends on from https to http:"):
            download.StaysSecure().redirect_request(request, *details)


def test_another_file_leaves_the_old_one(site, tmp_path):
    target = tmp_path / "file.bin"
    target.write_bytes(b"old")
    with pytest.raises(DownloadError):
        download_file(remote(site, sha256="0" * 64), target)
    assert target.read_bytes() == b"old"


def test_complete_part_is_used(site, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT)
    download_file(remote(site, sha256=SHA256), tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_part_of_another_file_is_dropped(site, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(b"x" * 800_000)
    download_file(remote(site, sha256=SHA256), tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_old_part_without_checksum_is_not_trusted(site, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(b"x" * 1000)
    download_file(remote(site), tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert site.ranges == [None]


def test_missing_on_the_server(site, tmp_path):
    site.files.clear()
    with pytest.raises(DownloadError, match="the server answered 404"):
        download_file(remote(site), tmp_path / "file.bin")
    assert len(site.ranges) == 1
    assert list(tmp_path.iterdir()) == []


def test_no_server(tmp_path):
    with pytest.raises(DownloadError, match=r"no connection .* save http://127.0.0.1:9/file.bin as "):
        download_file(DataFile("file.bin", "http://127.0.0.1:9/file.bin"), tmp_path / "file.bin")


def test_folder_that_cannot_be_written(site, tmp_path):
    (tmp_path / "folder").write_text("a file where the folder should be")
    with pytest.raises(DownloadError, match=r"could not be fetched"):
        download_file(remote(site), tmp_path / "folder" / "file.bin")


def test_checksum(tmp_path):
    (tmp_path / "a").write_bytes(CONTENT)
    assert DataFile("a", md5=MD5).difference(tmp_path / "a") is None
    assert DataFile("a", md5="0" * 32).difference(tmp_path / "a") == f"expected md5 {'0' * 32}, got {MD5}"


# --- a whole data set


@pytest.fixture
def two_files(site, tmp_path, monkeypatch):
    monkeypatch.setenv("DIVA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DIVA_DATA", raising=False)
    info = REGISTRY["svhn"]
    published = info.layouts[0]
    site.files = {f"/{remote.filename}": CONTENT[: 1000 * (i + 1)] for i, remote in enumerate(published.files)}
    files = tuple(
        replace(
            file, url=f"{site.address}/{file.filename}", md5=hashlib.md5(site.files[f"/{file.filename}"]).hexdigest(), size=size
        )
        for file, size in zip(published.files, (1000, 2000), strict=True)
    )
    monkeypatch.setitem(REGISTRY, "svhn", replace(info, layouts=(replace(published, files=files),)))
    return tmp_path / "cache" / "svhn"


def test_get_dataset(two_files, site):
    seen = []
    paths = get_dataset("svhn", on_progress=lambda done, total: seen.append((done, total)))
    assert paths == [two_files / "train_32x32.mat", two_files / "test_32x32.mat"]
    assert [path.stat().st_size for path in paths] == [1000, 2000]
    assert {total for _, total in seen} == {3000}
    assert seen[-1] == (3000, 3000)
    n_asked = len(site.ranges)
    assert get_dataset("svhn") == paths
    assert len(site.ranges) == n_asked


def test_get_dataset_fetches_what_is_damaged(two_files, site):
    paths = get_dataset("svhn")
    paths[1].write_bytes(b"damaged")
    site.ranges.clear()
    get_dataset("svhn")
    assert paths[1].stat().st_size == 2000
    assert len(site.ranges) == 1
