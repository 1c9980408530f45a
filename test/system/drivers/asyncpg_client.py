# One step of the asyncpg test: 20 connections in one event loop, each with a tag of its own, checking every value
# they read. asyncpg speaks the protocol itself: it prepares everything as __asyncpg_stmt_1__ and so on, in binary.
#   asyncpg_client.py <step> <host> <port> <database> <prefix of the tags>
# Prints "done" and exits 0, or ends with a traceback; a step that hangs ends with the stack of the loop.

import asyncio
import faulthandler
import io
import sys

import asyncpg
from asyncpg import exceptions as errors

CLIENTS = 20
ROUNDS = 4
STEP_SECONDS = 150

step_name, host, port, database, prefix = sys.argv[1:6]
login = {"host": host, "port": int(port), "user": "postgres", "database": database}


async def fails(error, action):
    try:
        await action
    except error:
        return
    raise AssertionError(f"no {error.__name__}")


async def prepared(conn, index, tag):
    """Every client has the same names for texts of its own, and errors between them."""
    for n in range(ROUNDS):
        for k in range(15):
            row = await conn.fetchrow(f"SELECT '{tag}' AS tag, $1::int + {k} AS n", n)
            assert tuple(row) == (tag, n + k), row
        await conn.execute("INSERT INTO mine VALUES ($1, $2)", tag, n)
        rows = await conn.fetch("SELECT n FROM mine WHERE tag = $1 ORDER BY n", tag)
        assert [row["n"] for row in rows] == list(range(n + 1)), rows
        await fails(errors.DivisionByZeroError, conn.fetchval("SELECT $1::int / 0", index))
        await fails(errors.UndefinedTableError, conn.fetchval("SELECT * FROM not_there"))
        statement = await conn.prepare("SELECT $1::text || $2::text")
        assert await statement.fetchval(tag, "!") == tag + "!"
        mood = await conn.fetchval("SELECT ARRAY[$1::mood]", "ok")
        assert mood == ["ok"], mood


async def evicted(conn, index, tag):
    """More statements than the driver keeps: it closes the oldest."""
    for n in range(ROUNDS):
        for k in range(25):
            assert await conn.fetchval(f"SELECT '{tag} {k}' || $1::int", n) == f"{tag} {k}{n}"


async def transactions(conn, index, tag):
    for n in range(ROUNDS):
        try:
            async with conn.transaction(isolation="repeatable_read"):
                await conn.execute("INSERT INTO mine VALUES ($1, $2)", tag, n)
                try:
                    async with conn.transaction():
                        await conn.execute("INSERT INTO mine VALUES ($1, $2)", tag, n)
                except errors.UniqueViolationError:
                    pass
                async with conn.transaction():
                    await conn.execute("INSERT INTO mine VALUES ($1, $2)", tag, -n - 1)
                if n % 2 == 1:
                    raise KeyError("changed my mind")
        except KeyError:
            pass
        count = await conn.fetchval("SELECT count(*) FROM mine WHERE tag = $1", tag)
        assert count == 2 * (n // 2 + 1), (n, count)


async def cursors(conn, index, tag):
    for _ in range(3):
        async with conn.transaction():
            query = "SELECT $1::text AS tag, n + $2 AS n FROM numbers ORDER BY n"
            got = [tuple(row) async for row in conn.cursor(query, tag, index, prefetch=70)]
            assert got == [(tag, n + index) for n in range(1, 1001)]
            cursor = await conn.cursor(query, tag, index)
            await cursor.forward(500)
            assert [row["n"] for row in await cursor.fetch(3)] == [n + index for n in (501, 502, 503)]


async def batches(conn, index, tag):
    values = [(tag, n) for n in range(200)]
    await conn.executemany("INSERT INTO mine VALUES ($1, $2)", values)
    more = [(tag, n + 150) for n in range(100)]
    await fails(
        errors.UniqueViolationError, conn.executemany("INSERT INTO mine VALUES ($1, $2)", more[::-1])
    )
    assert await conn.fetchval("SELECT count(*) FROM mine WHERE tag = $1", tag) == 200
    rows = await conn.fetch("SELECT n FROM mine WHERE tag = $1 ORDER BY n", tag)
    assert [row["n"] for row in rows] == list(range(200))


async def copies(conn, index, tag):
    records = [(tag, n, "x" * (n % 100)) for n in range(2000)]
    await conn.copy_records_to_table("copied", records=records)
    text = io.BytesIO(b"".join(f"{tag}\t{n}\ty\n".encode() for n in (1, 2, "no number", 3)))
    await fails(errors.InvalidTextRepresentationError, conn.copy_to_table("copied", source=text))
    out = io.BytesIO()
    query = "SELECT n, body FROM copied WHERE tag = $1 ORDER BY n"
    await conn.copy_from_query(query, tag, output=out)
    assert out.getvalue() == b"".join(f"{n}\t{'x' * (n % 100)}\n".encode() for n in range(2000))
    assert await conn.fetchval("SELECT $1::text", tag) == tag


async def cancels(conn, index, tag):
    for _ in range(3):
        if index % 2 == 0:
            assert await conn.fetchval("SELECT $1::text FROM pg_sleep(0.02)", tag) == tag
            continue
        await fails(asyncio.TimeoutError, conn.execute("SELECT pg_sleep(300)", timeout=0.1))
        # The driver waits here until its cancel has had its effect, and bears no timeout while it does.
        assert await conn.fetchval("SELECT $1::text", tag) == tag
        await fails(asyncio.TimeoutError, asyncio.wait_for(conn.fetch("SELECT pg_sleep(300)"), 0.1))
        assert await conn.fetchval("SELECT $1::text", tag) == tag


async def pools(pool):
    """A pool resets a connection that comes back: SELECT pg_advisory_unlock_all(); ... UNLISTEN *; RESET ALL."""

    async def work(at):
        tag = f"{prefix} pools {at}"
        async with pool.acquire() as conn:
            assert await conn.fetchval("SHOW search_path") == '"$user", public'
            async with conn.transaction():
                await conn.execute(f"SET LOCAL search_path = schema_{at}")
                await conn.execute("SELECT pg_advisory_xact_lock($1)", 3000 + at)
                path = await conn.fetchval("SELECT current_setting('search_path')")
                assert path == f"schema_{at}", path
            await conn.execute(f"SET search_path = schema_{at}")
        assert await pool.fetchval("SELECT $1::text", tag) == tag

    await asyncio.gather(*map(work, range(100)))


async def listens(conn, index, tag):
    got = []
    own, neighbour = (f"{prefix} {at % CLIENTS}" for at in (index, index + 1))
    await conn.add_listener(own, lambda _conn, _pid, channel, payload: got.append((channel, payload)))
    await everybody()
    for n in range(10):
        await conn.execute("SELECT pg_notify($1, $2)", neighbour, str(n))
    await everybody()
    await conn.execute("SELECT pg_notify($1, 'stop')", own)
    while (own, "stop") not in got:
        await asyncio.sleep(0.01)
    assert got == [(own, str(n)) for n in range(10)] + [(own, "stop")], got


waiting = []


async def everybody():
    """Waits until each client is here."""
    here = asyncio.get_running_loop().create_future()
    waiting.append(here)
    if len(waiting) == CLIENTS:
        for each in waiting:
            each.set_result(None)
        waiting.clear()
    await here


STEPS = (prepared, evicted, transactions, cursors, batches, copies, cancels, listens)


async def client(step, index):
    size = {"statement_cache_size": 10} if step is evicted else {}
    conn = await asyncpg.connect(**login, **size)
    try:
        await step(conn, index, f"{prefix} {step_name} {index}")
    finally:
        await conn.close(timeout=10)


async def main():
    if step_name == "pools":
        async with asyncpg.create_pool(**login, min_size=CLIENTS, max_size=CLIENTS) as pool:
            await pools(pool)
        return
    step = next(step for step in STEPS if step.__name__ == step_name)
    await asyncio.gather(*(client(step, index) for index in range(CLIENTS)))


faulthandler.dump_traceback_later(STEP_SECONDS, exit=True)
asyncio.run(main())
print("done")
