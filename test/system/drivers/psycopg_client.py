# One step of the psycopg test: 20 clients in threads, each with a tag of its own, checking every value they read.
#   psycopg_client.py <step> <host> <port> <database> <prefix of the tags>
# Prints "done" and exits 0, or ends with a traceback; a step that hangs ends with the stacks of all threads.

import faulthandler
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor

import psycopg
from psycopg import errors

CLIENTS = 20
ROUNDS = 8
STEP_SECONDS = 150

step_name, host, port, database, prefix = sys.argv[1:6]
# For steps in which clients wait for one another.
pair = threading.Barrier(2, timeout=STEP_SECONDS)
everybody = threading.Barrier(CLIENTS, timeout=STEP_SECONDS)


def connect(**more):
    return psycopg.connect(
        host=host, port=port, user="postgres", dbname=database, prepare_threshold=0, **more
    )


def fails(error, action):
    try:
        action()
    except error:
        return
    raise AssertionError(f"no {error.__name__}")


def prepared(index, tag):
    """Statements that every client names _pg3_0, _pg3_1 ... with texts of its own."""
    with connect(autocommit=True) as conn:
        for n in range(ROUNDS):
            for k in range(15):
                row = conn.execute(f"SELECT '{tag}', %s::int + {k}", (n,)).fetchone()
                assert row == (tag, n + k), row
            conn.execute("INSERT INTO mine VALUES (%s, %s)", (tag, n))
            rows = conn.execute("SELECT tag, n FROM mine WHERE tag = %s ORDER BY n", (tag,))
            assert rows.fetchall() == [(tag, each) for each in range(n + 1)]
            fails(errors.DivisionByZero, lambda: conn.execute("SELECT %s / 0", (index,)))


def deallocates(index, tag):
    """More statements than the driver keeps: it deallocates the oldest by name, in a query of its own."""

    def all_of_them(conn, n):
        cursors = [conn.execute(f"SELECT '{tag}', %s::int + {k}", (n,)) for k in range(25)]
        assert [cursor.fetchone() for cursor in cursors] == [(tag, n + k) for k in range(25)]

    with connect(autocommit=True) as conn:
        conn.prepared_max = 10
        for n in range(2):
            all_of_them(conn, n)
            with conn.transaction():
                all_of_them(conn, n)
                fails(errors.DivisionByZero, lambda: savepoint(conn, "SELECT 1 / 0"))
                all_of_them(conn, n)
            with conn.pipeline():
                all_of_them(conn, n)
        # Of what it has deallocated nothing is left; of what it has not, it may use everything.
        fails(errors.InvalidSqlStatementName, lambda: conn.execute("DEALLOCATE nobodys", prepare=False))
        assert conn.execute("SELECT %s", (tag,)).fetchone() == (tag,)


def savepoint(conn, query):
    with conn.transaction():
        conn.execute(query)


def conflicts(index, tag):
    """Deadlocks and serialization failures, which two of the clients provoke: a retry passes."""
    with connect() as conn:
        if index < 2:
            for _ in range(3):
                deadlock(conn, index)
            return
        conn.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        done = 0
        while done < 4:
            try:
                with conn.transaction():
                    (n,) = conn.execute(
                        "SELECT n FROM counted WHERE tag = %s", (f"{prefix} together",)
                    ).fetchone()
                    conn.execute(
                        "UPDATE counted SET n = %s WHERE tag = %s", (n + 1, f"{prefix} together")
                    )
                done += 1
            except errors.SerializationFailure:
                pass


outcomes = ["", ""]


def deadlock(conn, index):
    rows = [f"{prefix} {index}", f"{prefix} {1 - index}"]
    add = "UPDATE counted SET n = n + 1 WHERE tag = %s"
    try:
        with conn.transaction():
            conn.execute(add, rows[:1])
            pair.wait()
            conn.execute(add, rows[1:])
        outcomes[index] = "passed"
    except errors.DeadlockDetected:
        with conn.transaction():
            # In the order of the other, who may still wait for what this one had.
            for row in reversed(rows):
                conn.execute(add, (row,))
        outcomes[index] = "passed later"
    pair.wait()
    assert sorted(outcomes) == ["passed", "passed later"], outcomes
    pair.wait()


def before_conflicts(conn):
    rows = [(f"{prefix} {name}",) for name in ("0", "1", "together")]
    conn.cursor().executemany("INSERT INTO counted VALUES (%s, 0)", rows)


def after_conflicts(conn):
    rows = conn.execute("SELECT n FROM counted WHERE tag LIKE %s ORDER BY tag", (f"{prefix} %",))
    assert rows.fetchall() == [(6,), (6,), (4 * (CLIENTS - 2),)]


def timeouts(index, tag):
    """A timeout that is set for one transaction ends a statement of that transaction only."""
    with connect() as conn:
        for n in range(2):
            with conn.transaction():
                if index % 4 == 0:
                    conn.execute("SET LOCAL statement_timeout = 1000")
                    fails(errors.QueryCanceled, lambda: savepoint(conn, "SELECT pg_sleep(300)"))
                    conn.execute("SET LOCAL statement_timeout = 0")
                else:
                    conn.execute("SELECT pg_sleep(0.02)")
                conn.execute("INSERT INTO mine VALUES (%s, %s)", (tag, n))
            assert conn.execute("SHOW statement_timeout").fetchone() == ("0",)
            rows = conn.execute("SELECT count(*) FROM mine WHERE tag = %s", (tag,))
            assert rows.fetchone() == (n + 1,)
            conn.commit()


def settings(index, tag):
    """Settings of the connection string hold for the client that gave them."""
    wanted = (f"{60_001 + index}ms", f"schema_{index}")
    options = f"-c statement_timeout={wanted[0]} -c search_path={wanted[1]}"
    with connect(autocommit=True, options=options) as conn:
        for _ in range(ROUNDS):
            for name, value in zip(("statement_timeout", "search_path"), wanted):
                row = conn.execute("SELECT current_setting(%s)", (name,)).fetchone()
                assert row == (value,), row


def session(index, tag):
    """State of every kind lasts as long as the session, and the session begins without any."""
    with connect(autocommit=True) as conn:
        clean = ('"$user", public', None, 0, 0, 0, 0)
        assert session_state(conn) == clean, session_state(conn)
        (pid,) = conn.execute("SELECT pg_backend_pid()").fetchone()
        conn.execute(f"SET search_path = schema_{index}, pg_temp")
        conn.execute(f"CREATE TEMP TABLE own_things AS SELECT '{tag}' AS tag")
        conn.execute(f"PREPARE same_for_all (int) AS SELECT '{tag}', $1 + {index}", prepare=False)
        conn.execute(f"SELECT pg_advisory_lock({2000 + index})")
        conn.execute(f"LISTEN channel_{index}")
        with conn.cursor(name="held", withhold=True) as cursor:
            cursor.itersize = 3
            cursor.execute("SELECT %s::text, n FROM public.numbers", (tag,))
            for n in range(10):
                state = (f"schema_{index}, pg_temp", "own_things", 1, 1, 1, 1)
                assert session_state(conn) == state, session_state(conn)
                assert conn.execute("TABLE own_things").fetchall() == [(tag,)]
                row = conn.execute(f"EXECUTE same_for_all({n})", prepare=False).fetchone()
                assert row == (tag, n + index), row
                assert cursor.fetchone() == (tag, n + 1)
                assert conn.execute("SELECT pg_backend_pid()").fetchone() == (pid,)


def session_state(conn):
    return conn.execute(
        "SELECT current_setting('search_path'), to_regclass('pg_temp.own_things')::text,"
        " (SELECT count(*) FROM pg_prepared_statements WHERE from_sql),"
        " (SELECT count(*) FROM pg_cursors WHERE is_holdable),"
        " (SELECT count(*) FROM pg_listening_channels()),"
        " (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())"
    ).fetchone()


def listens(index, tag):
    """Everybody gets what is sent to its own channel and to all, in order, and nothing else."""
    own, neighbour, common = (f"{prefix} {to}" for to in (index, (index + 1) % CLIENTS, "all"))
    previous = (index - 1) % CLIENTS
    got = []

    with connect(autocommit=True) as conn:

        def until_stopped():
            """Reads what is left to read, up to a last message that one of the clients sends to all."""
            everybody.wait()
            if index == 0:
                with connect(autocommit=True) as sender:
                    sender.execute("SELECT pg_notify(%s, 'stop')", (common,))
            for note in conn.notifies():
                got.append((note.channel, note.payload))
                if note.payload == "stop":
                    return

        # While a query runs the driver hands notifications to this one.
        conn.add_notify_handler(lambda note: got.append((note.channel, note.payload)))
        for channel in (own, common):
            conn.execute(f'LISTEN "{channel}"')
        everybody.wait()
        for n in range(5):
            conn.execute("SELECT pg_notify(%s, %s)", (neighbour, f"from {index}: {n}"))
            assert conn.execute("SELECT %s", (tag,)).fetchone() == (tag,)
        with conn.transaction():
            conn.execute("SELECT pg_notify(%s, 'committed')", (neighbour,))
        with conn.transaction(force_rollback=True):
            conn.execute("SELECT pg_notify(%s, 'rolled back')", (neighbour,))
        conn.execute("SELECT pg_notify(%s, %s)", (common, str(index)))
        until_stopped()
        expected = [f"from {previous}: {n}" for n in range(5)] + ["committed"]
        assert [payload for channel, payload in got if channel == own] == expected, got
        shared = [payload for channel, payload in got if channel == common]
        assert sorted(shared) == sorted([*map(str, range(CLIENTS)), "stop"]), got
        assert len(got) == len(expected) + len(shared), got

        conn.execute(f'UNLISTEN "{own}"')
        everybody.wait()
        conn.execute("SELECT pg_notify(%s, 'too late')", (neighbour,))
        got.clear()
        until_stopped()
        assert got == [(common, "stop")], got


def transactions(index, tag):
    with connect() as conn:
        for n in range(ROUNDS):
            conn.execute("INSERT INTO mine VALUES (%s, %s)", (tag, n))
            fails(
                errors.UniqueViolation,
                lambda: conn.execute("INSERT INTO mine VALUES (%s, %s)", (tag, n)),
            )
            fails(errors.InFailedSqlTransaction, lambda: conn.execute("SELECT 1"))
            # After a rollback the driver prepares everything anew, and says so: DEALLOCATE ALL.
            conn.rollback()
            with conn.transaction():
                conn.execute("INSERT INTO mine VALUES (%s, %s)", (tag, n))
                with conn.transaction(force_rollback=True):
                    conn.execute("INSERT INTO mine VALUES (%s, %s)", (tag, -n - 1))
            count = conn.execute("SELECT count(*) FROM mine WHERE tag = %s", (tag,)).fetchone()
            assert count == (n + 1,), count
            conn.commit()


def pipelines(index, tag):
    with connect(autocommit=True) as conn:
        for n in range(ROUNDS // 2):
            with conn.pipeline():
                cursors = [
                    conn.execute(f"SELECT '{tag}', %s::int, {k}", (n,)) for k in range(20)
                ]
            rows = [cursor.fetchone() for cursor in cursors]
            assert rows == [(tag, n, k) for k in range(20)], rows

            def broken():
                with conn.pipeline() as pipeline:
                    conn.execute("SELECT %s, 'before'", (tag,))
                    conn.execute(f"SELECT %s::int / 0, {n}", (n,), prepare=False)
                    # The driver would take a statement for prepared that the server has skipped.
                    conn.execute("SELECT %s, 'behind'", (tag,), prepare=False)
                    pipeline.sync()

            fails(errors.DivisionByZero, broken)
            with conn.pipeline() as pipeline:
                good = conn.execute("SELECT %s, 'first'", (tag,))
                pipeline.sync()

                def skipped():
                    conn.execute("SELECT * FROM not_there", prepare=False)
                    conn.execute("SELECT %s, 'second'", (tag,), prepare=False)
                    pipeline.sync()

                fails(errors.UndefinedTable, skipped)
                while pipeline.status == pipeline.status.ABORTED:
                    try:
                        pipeline.sync()
                    except errors.PipelineAborted:
                        pass
                later = conn.execute("SELECT %s, 'third'", (tag,))
                pipeline.sync()
                assert good.fetchone() == (tag, "first")
                assert later.fetchone() == (tag, "third")
            cursor = conn.cursor()
            values = [(tag, 1000 * n + k) for k in range(30)]
            cursor.executemany("INSERT INTO mine VALUES (%s, %s)", values)
            fails(
                errors.UniqueViolation,
                lambda: cursor.executemany("INSERT INTO mine VALUES (%s, %s)", values),
            )
            cursor.executemany("SELECT %s::text, %s::int", values, returning=True)
            got = [cursor.fetchone()]
            while cursor.nextset():
                got.append(cursor.fetchone())
            assert got == values
    with connect() as conn:
        for n in range(ROUNDS):
            fails(errors.UniqueViolation, lambda: pipelined_transaction(conn, tag, n))
            conn.rollback()
            row = conn.execute("SELECT %s, count(*) FROM mine WHERE tag = %s AND n < 0", (tag, tag))
            assert row.fetchone() == (tag, 0)
            conn.commit()


def pipelined_transaction(conn, tag, n):
    with conn.pipeline():
        with conn.transaction():
            for _ in range(2):
                conn.execute("INSERT INTO mine VALUES (%s, %s)", (tag, -n - 1))


def cursors(index, tag):
    with connect() as conn:
        for n in range(3):
            with conn.cursor(name="same_for_all") as cursor:
                cursor.itersize = 70
                cursor.execute("SELECT %s::text, n FROM generate_series(1, 500) n", (tag,))
                assert [row for row in cursor] == [(tag, k + 1) for k in range(500)]
            with conn.cursor(name="scrolls", scrollable=True) as cursor:
                cursor.execute("SELECT n + %s FROM generate_series(0, 99) n", (index,))
                cursor.scroll(50)
                assert cursor.fetchone() == (50 + index,)
                cursor.scroll(0, mode="absolute")
                assert cursor.fetchmany(2) == [(index,), (index + 1,)]
            conn.commit()
            streamed = conn.cursor().stream("SELECT %s::text, n FROM generate_series(1, 300) n", (tag,))
            assert list(streamed) == [(tag, k + 1) for k in range(300)]
            rows = conn.cursor(binary=True).execute("SELECT %s::int4, %s::text", (n, tag)).fetchall()
            assert rows == [(n, tag)]
            conn.commit()


def copies(index, tag):
    with connect() as conn:
        cursor = conn.cursor()
        with cursor.copy("COPY copied FROM STDIN") as copy:
            for n in range(200):
                copy.write_row((tag, n, "x" * (n % 100)))
        conn.commit()

        def malformed():
            with cursor.copy("COPY copied FROM STDIN") as copy:
                for n in range(200):
                    copy.write_row((tag, "no number" if n == 150 else n, ""))

        fails(errors.InvalidTextRepresentation, malformed)
        conn.rollback()

        def broken_off():
            with cursor.copy("COPY copied FROM STDIN") as copy:
                copy.write_row((tag, 1, ""))
                raise KeyError("changed my mind")

        fails(errors.QueryCanceled, broken_off)
        conn.rollback()
        query = "COPY (SELECT tag, n FROM copied WHERE tag = %s ORDER BY n) TO STDOUT"
        with cursor.copy(query, (tag,)) as copy:
            copy.set_types(["text", "int4"])
            assert list(copy.rows()) == [(tag, n) for n in range(200)]

        def half_read():
            long = "SELECT repeat('long', 500) FROM generate_series(1, 1000)"
            with cursor.copy(f"COPY ({long}) TO STDOUT") as copy:
                copy.read()
                raise KeyError("enough of it")

        fails(KeyError, half_read)
        conn.rollback()
        assert conn.execute("SELECT %s", (tag,)).fetchone() == (tag,)


def cancels(index, tag):
    with connect(autocommit=True) as conn:
        for n in range(3):
            if index % 2 == 0:
                row = conn.execute("SELECT pg_sleep(0.02)::text, %s", (tag,)).fetchone()
                assert row == ("", tag), row
                continue
            over = threading.Event()

            def cancel():
                # One that comes before the query has begun does nothing.
                while not over.wait(0.1):
                    conn.cancel()

            thread = threading.Thread(target=cancel)
            thread.start()
            try:
                fails(errors.QueryCanceled, lambda: conn.execute("SELECT pg_sleep(300)"))
            finally:
                over.set()
                thread.join()
            assert conn.execute("SELECT %s", (tag,)).fetchone() == (tag,)


STEPS = (
    *(prepared, deallocates, transactions, conflicts, pipelines, cursors, copies, cancels),
    *(timeouts, settings, session, listens),
)
AROUND = {conflicts: (before_conflicts, after_conflicts)}


def run(step):
    before, after = AROUND.get(step, (None, None))
    if before is not None:
        with connect() as conn:
            before(conn)

    def client(index):
        try:
            step(index, f"{prefix} {step_name} {index}")
        except BaseException:
            # Who waits for this one would wait for ever, and be blamed.
            traceback.print_exc()
            pair.abort()
            everybody.abort()
            raise

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(client, range(CLIENTS)))
    if after is not None:
        with connect() as conn:
            after(conn)


faulthandler.dump_traceback_later(STEP_SECONDS, exit=True)
run(next(step for step in STEPS if step.__name__ == step_name))
print("done")
