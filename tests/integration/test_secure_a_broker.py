"""docs/howto/secure-a-broker.md, as its reader does it: from nothing to a client of a broker with TLS and a user."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from documents import ROOT, code_blocks, save_programs

PAGE = ROOT / "docs" / "howto" / "secure-a-broker.md"
PATIENCE = 60


def commands() -> list[str]:
    """The commands of the page, one for each line that is one."""
    text = "\n".join(block.code for block in code_blocks(PAGE, "sh")).replace("\\\n", "")
    return [line for line in text.splitlines() if line.strip()]


async def run(line: str, folder: Path) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_shell(
        re.sub(r"(^|\| )gapless ", rf"\1{shlex.quote(sys.executable)} -m gapless ", line),
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    return process.returncode, output.decode()


@pytest.mark.skipif(os.name == "nt", reason="openssl is no part of it")
async def test_the_page_leads_to_a_client_of_a_secured_broker(tmp_path: Path) -> None:
    make, chmod, add, _broker, publish, *rest = commands()
    save_programs(PAGE, tmp_path)
    toml, of_a_network = (block.code for block in code_blocks(PAGE, "toml"))
    (tmp_path / "gapless.toml").write_text(toml.replace("0.0.0.0:7400", "0.0.0.0:0"), "utf-8")
    (tmp_path / "ada.txt").write_text("S3CRET-of-ada\n", "utf-8")
    (tmp_path / "wrong.txt").write_text("S3CRET-of-nobody\n", "utf-8")
    for line in (make, chmod, add):
        status, output = await run(line, tmp_path)
        assert status == 0, (line, output)
        assert "S3CRET" not in output
    broker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gapless", "broker", "--config", "gapless.toml", cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    log: list[str] = []
    try:
        port = await asyncio.wait_for(_port(broker, log), PATIENCE)
        reading = asyncio.ensure_future(_read(broker, log))
        program = (tmp_path / "secured.py").read_text("utf-8").replace("7400", port)
        (tmp_path / "secured.py").write_text(program, "utf-8")

        status, output = await run(publish.replace("7400", port), tmp_path)
        assert status == 0, output
        wrong = publish.replace("7400", port).replace("ada.txt", "wrong.txt")
        right, refused = await asyncio.gather(run(f"{sys.executable} secured.py", tmp_path), run(wrong, tmp_path))
        assert (right[0], right[1].strip()) == (0, "hello"), right
        status, output = refused
        assert status == 1
        assert "the credentials are not valid here" in output
        (listed, *_) = rest
        assert listed.startswith("gapless user list")
    finally:
        broker.terminate()
        await asyncio.wait_for(broker.wait(), PATIENCE)
    await reading
    said = "\n".join(log)
    assert "the password is wrong" in said
    assert "S3CRET" not in said + output
    (in_a_file,) = [line for line in rest if "--file" in line]
    (status, output), (other_status, other) = await asyncio.gather(run(listed, tmp_path), run(in_a_file, tmp_path))
    assert (status, "ada" in output) == (0, True), output
    assert (other_status, (tmp_path / "users.jsonl").stat().st_mode & 0o777) == (0, 0o600), other
    assert "users.jsonl" in of_a_network


async def _port(broker: asyncio.subprocess.Process, log: list[str]) -> str:
    assert broker.stdout is not None
    async for line in broker.stdout:
        log.append(line.decode())
        match = re.search(r"gapless\+tls://[^:\s]+:(\d+)", log[-1])
        if match:
            return match[1]
    raise AssertionError("\n".join(log))


async def _read(broker: asyncio.subprocess.Process, log: list[str]) -> None:
    assert broker.stdout is not None
    log += [line.decode() async for line in broker.stdout]
