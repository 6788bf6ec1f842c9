"""A server that writes, sends and starts things above its questions, below them, and in steps."""

import asyncio
import logging
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from antiphon import Context, Server, input_required


def save(file: Path, text: str) -> None:
    file.write_text(text)


def desk(folder: Path, port: int = 0) -> Server:
    file = folder / "log.txt"

    @asynccontextmanager
    async def opened(_: Server) -> AsyncGenerator[sqlite3.Connection]:
        file = folder / "desk.db"
        with closing(sqlite3.connect(file, check_same_thread=False, isolation_level=None)) as db:
            db.execute("CREATE TABLE IF NOT EXISTS notes (text)")
            yield db

    app = Server("desk", lifespan=opened)

    @app.tool
    async def note(ctx: Context) -> str:
        with file.open("a") as log:
            log.write("noted\n")
        ctx.lifespan.execute("INSERT INTO notes VALUES ('noted')")
        return str(await ctx.confirm("Sure?"))

    @app.tool
    async def note_well(ctx: Context) -> str:
        file.exists() and file.read_text()
        db = ctx.lifespan
        db.execute("SELECT * FROM notes").fetchall()
        logging.getLogger("desk").warning("asking")
        await ctx.step("note", save, file, "noted")
        await ctx.step("row", lambda: db.execute("INSERT INTO notes VALUES ('noted')").rowcount)
        sure = await ctx.confirm("Sure?")
        save(file, "done")
        db.execute("INSERT INTO notes VALUES ('done')")
        return str(sure)

    @app.tool
    def plain(ctx: Context) -> str:
        save(file, "noted")
        ctx.lifespan.cursor().executemany("INSERT INTO notes VALUES (?)", [["a"], ["b"]])
        return str(ctx.sync.confirm("Sure?"))

    @app.tool
    async def everything(ctx: Context) -> str:
        (folder / f"{ctx.round}" / "inner").mkdir(parents=True)
        os.rename(folder / f"{ctx.round}", folder / f"{ctx.round}-b")  # noqa: PTH104 -- one of the ways
        shutil.rmtree(folder / f"{ctx.round}-b")
        subprocess.run([sys.executable, "-c", ""], check=True)  # noqa: ASYNC221 -- a handler may
        await (await asyncio.create_subprocess_exec(sys.executable, "-c", "")).wait()
        os.system("true")  # noqa: ASYNC221 -- a handler may
        socket.create_connection(("127.0.0.1", port)).close()
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        return str(await ctx.confirm("Sure?"))

    @app.tool
    async def own_rounds(ctx: Context) -> object:
        if ctx.state(int) is None:
            save(file, "draft")
            return input_required(state=1)
        save(file, "final")
        return "Saved"

    return app
