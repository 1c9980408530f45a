-- COPY in and out: text, csv, options, bad data, many rows.
CREATE TABLE copy_rows (a int, b text, c float8);
COPY copy_rows FROM STDIN;
1	one	1.5
2	\N	NaN
3	tab\there\\ and\nnewline	-Infinity
4		0
\.
COPY copy_rows TO STDOUT;
COPY copy_rows (b, a) TO STDOUT;
COPY (SELECT a, b FROM copy_rows ORDER BY a DESC) TO STDOUT WITH (FORMAT csv, HEADER, QUOTE '''', FORCE_QUOTE *);
COPY copy_rows TO STDOUT WITH (FORMAT csv, NULL 'null', DELIMITER ';');
COPY copy_rows TO STDOUT WITH (FORMAT binary);
COPY copy_rows TO STDOUT (DELIMITER '|', NULL '');
COPY copy_rows FROM STDIN WITH (FORMAT csv, HEADER);
a,b,c
5,"quoted, ""text""
in two lines",5
6,,
\.
COPY copy_rows FROM STDIN WITH CSV;
7,"unterminated
\.
COPY copy_rows FROM STDIN;
x	not a number	1
\.
COPY copy_rows FROM STDIN;
8	too few
\.
COPY copy_rows FROM STDIN;
9	too	1	many
\.
COPY copy_rows FROM STDIN;
10	bad \xff byte	1
\.
COPY copy_rows (a) FROM STDIN;
11
12
\.
COPY copy_rows (a) FROM STDIN WHERE a > 20;
13
21
\.
COPY copy_rows FROM STDIN;
\.
COPY copy_rows (a, a) FROM STDIN;
COPY copy_rows (nothing) TO STDOUT;
COPY copy_rows FROM STDIN WITH (FORMAT binary);
not binary at all
\.
SELECT a, b, c FROM copy_rows ORDER BY a;
BEGIN;
COPY copy_rows (a) FROM STDIN;
14
\.
ROLLBACK;
BEGIN;
COPY copy_rows (a) FROM STDIN;
fifteen
\.
SELECT 1;
COPY copy_rows (a) FROM STDIN;
16
\.
COPY copy_rows TO STDOUT;
ROLLBACK;
COPY (SELECT x, repeat('x', x % 50) FROM generate_series(1, 3000) x) TO STDOUT;
COPY (SELECT repeat('y', 200000)) TO STDOUT;
COPY (SELECT 1 / (3 - x) FROM generate_series(1, 5) x) TO STDOUT;
COPY (INSERT INTO copy_rows VALUES (17) RETURNING a) TO STDOUT;
COPY (VALUES (1, NULL, 'x')) TO STDOUT;
COPY (SELECT) TO STDOUT;
CREATE VIEW copy_view AS SELECT 1 AS a;
COPY copy_view TO STDOUT;
COPY copy_view FROM STDIN;
CREATE TABLE copy_default (a int, b text DEFAULT 'given', c int GENERATED ALWAYS AS (a * 2) STORED);
COPY copy_default (a) FROM STDIN;
1
\.
COPY copy_default (c) FROM STDIN;
SELECT * FROM copy_default;
CREATE FUNCTION copy_noisy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'row %', NEW.a; RETURN NEW; END $$;
CREATE TRIGGER copy_noisy BEFORE INSERT ON copy_default FOR EACH ROW EXECUTE FUNCTION copy_noisy();
COPY copy_default (a) FROM STDIN;
2
3
x
\.
COPY copy_default (a) FROM STDIN;
4
5
\.
DROP TABLE copy_rows, copy_default;
DROP VIEW copy_view;
DROP FUNCTION copy_noisy;
