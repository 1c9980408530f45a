# One step of the psycopg test: 20 clients in threads, each with a tag of its own, checking every value they read.
#   psycopg_client.py <step> <host> <port> <prefix of the tags>
# Prints "done" and exits 0, or ends with a traceback; a step that hangs ends with the stacks of all threads.

import faulthandler
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
from psycopg import errors

CLIENTS = 20
ROUNDS = 8
STEP_SECONDS = 50

step_name, host, port, prefix = sys.argv[1:5]


def connect(**more):
    return psycopg.connect(
        host=host, port=port, user="postgres", dbname="postgres", prepare_threshold=0, **more
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
        for n in range(ROUNDS):
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
            for n in range(600):
                copy.write_row((tag, n, "x" * (n % 100)))
        conn.commit()

        def malformed():
            with cursor.copy("COPY copied FROM STDIN") as copy:
                for n in range(600):
                    copy.write_row((tag, "no number" if n == 500 else n, ""))

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
            assert list(copy.rows()) == [(tag, n) for n in range(600)]

        def half_read():
            with cursor.copy("COPY (SELECT n FROM generate_series(1, 60000) n) TO STDOUT") as copy:
                copy.read()
                raise KeyError("enough of it")

        fails(KeyError, half_read)
        conn.rollback()
        assert conn.execute("SELECT %s", (tag,)).fetchone() == (tag,)


def cancels(index, tag):
    with connect(autocommit=True) as conn:
        for n in range(4):
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


steps = {
    "prepared": prepared,
    "transactions": transactions,
    "pipelines": pipelines,
    "cursors": cursors,
    "copies": copies,
    "cancels": cancels,
}

faulthandler.dump_traceback_later(STEP_SECONDS, exit=True)
with ThreadPoolExecutor(CLIENTS) as pool:
    running = [pool.submit(steps[step_name], n, f"{prefix} {step_name} {n}") for n in range(CLIENTS)]
    for each in running:
        each.result()
print("done")
