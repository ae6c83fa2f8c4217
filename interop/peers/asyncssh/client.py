"""An asyncssh client that runs $INTEROP_COMMAND, as ssh would."""

import argparse
import asyncio
import contextlib
import os
import sys

import asyncssh

FOLDER = os.environ["INTEROP_FOLDER"]
CHUNK = 65536
FAILED = 255  # as ssh says it


async def run(options: dict[str, object], command: str) -> int:
    async with asyncssh.connect(
        os.environ["INTEROP_HOST"],
        int(os.environ["INTEROP_PORT"]),
        username=os.environ["INTEROP_USER"],
        known_hosts=os.environ["INTEROP_KNOWN_HOSTS"],
        agent_path=None,
        config=None,
        **options,
    ) as connection:
        process = await connection.create_process(command, encoding=None)
        feeding = asyncio.create_task(feed(process.stdin))
        await asyncio.gather(drain(process.stdout, 1), drain(process.stderr, 2))
        await process.wait_closed()
        feeding.cancel()
        return FAILED if process.exit_status is None else max(process.exit_status, 0)


async def feed(writer: asyncssh.SSHWriter[bytes]) -> None:
    with contextlib.suppress(OSError, asyncssh.Error):
        while data := await asyncio.to_thread(os.read, 0, CHUNK):
            writer.write(data)
            await writer.drain()
        writer.write_eof()


async def drain(reader: asyncssh.SSHReader[bytes], file: int) -> None:
    while data := await reader.read(CHUNK):
        while data:
            data = data[await asyncio.to_thread(os.write, file, data) :]


def login() -> dict[str, object]:
    kind = os.environ["INTEROP_LOGIN"]
    if kind == "password":
        return {"password": os.environ["INTEROP_PASSWORD"], "client_keys": None}
    return {"client_keys": [f"{FOLDER}/user_{kind}"]}


def settings() -> dict[str, object]:
    parser = argparse.ArgumentParser()
    for name in ("cipher", "mac", "kex", "host-key"):
        parser.add_argument(f"--{name}", type=lambda text: text.split(","))
    parser.add_argument("--rekey", type=int)
    chosen = parser.parse_args()
    options = {"encryption_algs": chosen.cipher, "mac_algs": chosen.mac, "kex_algs": chosen.kex}
    options |= {"server_host_key_algs": chosen.host_key, "rekey_bytes": chosen.rekey}
    return {name: value for name, value in options.items() if value is not None}


async def main() -> int:
    try:
        status = await run(login() | settings(), os.environ["INTEROP_COMMAND"])
    except (OSError, asyncssh.Error) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        status = FAILED
    os._exit(status)  # a thread may still wait for standard input


asyncio.run(main())
