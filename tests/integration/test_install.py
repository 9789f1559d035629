"""`make setup` installs with uv as pip is configured, and with pip where there is no uv."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from tests.support.scripts import load_script

SCRIPT = Path(__file__).parents[2] / ".ci" / "install.py"


@pytest.fixture(scope="module")
def install() -> ModuleType:
    return load_script(SCRIPT)


def test_of_several_sources_of_a_setting_pip_takes_the_strongest(install: ModuleType) -> None:
    listed = (
        ":env:.find-links='/a /b'\nglobal.find-links='/c'\nglobal.index-url='https://one'\n"
        "install.index-url='https://two'\nwheel.index-url='https://three'\n"
    )
    assert install.parse_settings(listed) == {"find-links": "/a /b", "index-url": "https://two"}


def test_uv_is_told_what_pip_is_told(install: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By pip's own reading of its files and variables."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://i.example/simple\nfind-links = /a\n    /b\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PIP_CERT", "/ca.pem")
    pip = [sys.executable, "-m", "pip"]
    told = install.settings_for_uv(pip)
    wanted = {
        "UV_DEFAULT_INDEX": "https://i.example/simple",
        "UV_FIND_LINKS": "/a,/b",
        "SSL_CERT_FILE": "/ca.pem",
    }
    assert {name: told.get(name) for name in wanted} == wanted
    assert "UV_INDEX_STRATEGY" not in told
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://one/simple https://two/simple")
    told = install.settings_for_uv(pip)
    assert told["UV_INDEX"] == "https://one/simple https://two/simple"
    assert told["UV_INDEX_STRATEGY"] == "unsafe-best-match"


def wheel_of(name: str, folder: Path) -> Path:
    path, info = folder / f"{name}-1.0-py3-none-any.whl", f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", "WORD = 'installed'\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def install_offline(venv: Path, what: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    environment |= {"PIP_NO_INDEX": "1", "UV_OFFLINE": "1", "PIP_CONFIG_FILE": os.devnull}
    command = [sys.executable, str(SCRIPT), str(venv), str(what)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_with_uv_and_without(tmp_path: Path) -> None:
    venv, found = tmp_path / "venv", Path(sys.executable).parent / "uv"
    ended = install_offline(venv, wheel_of("first", tmp_path))
    assert ended.returncode == 0, ended.stderr
    assert "uv could not be installed (" in ended.stderr
    if not found.exists():
        pytest.skip("uv is not in this environment")
    shutil.copy(found, venv / "bin" / "uv")
    ended = install_offline(venv, wheel_of("second", tmp_path))
    assert (ended.returncode, ended.stderr) == (0, "")
    words = "import first, second; print(first.WORD, second.WORD)"
    assert subprocess.check_output([venv / "bin" / "python", "-c", words], text=True) == "installed installed\n"
    ended = install_offline(venv, tmp_path / "missing-1.0-py3-none-any.whl")
    assert ended.returncode != 0
    assert "make INSTALLER=pip" in ended.stderr


@pytest.mark.slow
def test_an_environment_without_pip_gets_it_and_keeps_the_rest(tmp_path: Path) -> None:
    """As uv makes one, or a kill while pip was being installed."""
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    kept = next((venv / "lib").glob("python3*")) / "site-packages" / "kept.py"
    kept.write_text("WORD = 'kept'\n")
    ended = install_offline(venv, wheel_of("first", tmp_path))
    assert ended.returncode == 0, ended.stderr
    words = "import first, kept; print(first.WORD, kept.WORD)"
    assert subprocess.check_output([venv / "bin" / "python", "-c", words], text=True) == "installed kept\n"


@pytest.mark.slow
def test_without_a_network_one_sentence_says_what_to_do(install: ModuleType, tmp_path: Path) -> None:
    """Nothing listens at the index; pip repeats its attempts, and says each in a line of 300 characters."""
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "2"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))} | nowhere
    command = [sys.executable, str(SCRIPT), str(tmp_path / "venv"), "physai-nothing"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    *lines, last = ended.stderr.splitlines()
    assert len(lines) <= install.SHOWN_LINES + 2, ended.stderr
    assert last.startswith(
        "The packages could not be installed: the package index cannot be reached: check the network"
    )


def test_a_folder_in_which_no_environment_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = install_offline(tmp_path / "file" / "venv", tmp_path)
    assert ended.returncode == 1
    assert "is python3-venv installed?" in ended.stderr
