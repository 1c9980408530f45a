-- Several statements in one string: one implicit transaction, ended by the first error.
CREATE TABLE strings_rows (n int PRIMARY KEY);
SELECT 1\; SELECT 2\; SELECT 3;
INSERT INTO strings_rows VALUES (1)\; INSERT INTO strings_rows VALUES (2)\; SELECT * FROM strings_rows;
INSERT INTO strings_rows VALUES (3)\; INSERT INTO strings_rows VALUES (1)\; INSERT INTO strings_rows VALUES (4);
SELECT * FROM strings_rows ORDER BY n;
SELECT 1\; SELECT 1 / 0\; SELECT 2;
SELECT 1\; SELEC 2\; SELECT 3;
BEGIN\; INSERT INTO strings_rows VALUES (5)\; COMMIT\; INSERT INTO strings_rows VALUES (1)\; SELECT 'never';
SELECT * FROM strings_rows ORDER BY n;
INSERT INTO strings_rows VALUES (6)\; COMMIT\; INSERT INTO strings_rows VALUES (7)\; ROLLBACK\; SELECT * FROM strings_rows ORDER BY n;
INSERT INTO strings_rows VALUES (8)\; BEGIN\; INSERT INTO strings_rows VALUES (9);
SELECT 'in a block';
ROLLBACK\; SELECT * FROM strings_rows ORDER BY n;
BEGIN\; SELECT 1 / 0\; ROLLBACK;
ROLLBACK\; SELECT 'after';
BEGIN\; SAVEPOINT a\; SELECT 1 / 0;
ROLLBACK TO a\; SELECT 'saved'\; COMMIT;
SAVEPOINT a\; SELECT 1;
VACUUM strings_rows\; SELECT 1;
SELECT 1\; VACUUM strings_rows;
CREATE TABLE strings_more (n int)\; INSERT INTO strings_more VALUES (1)\; SELECT * FROM strings_more\; DROP TABLE strings_more;
SET LOCAL statement_timeout = 1234\; SHOW statement_timeout;
SHOW statement_timeout;
SELECT 1\; DO $$ BEGIN RAISE NOTICE 'between'; END $$\; SELECT 2;
COPY strings_rows TO STDOUT\; SELECT 'x'\; COPY (SELECT 1) TO STDOUT;
COPY strings_rows FROM STDIN\; SELECT count(*) FROM strings_rows\; COPY strings_rows FROM STDIN;
100
101
\.
102
103
\.
COPY strings_rows FROM STDIN\; SELECT 'never'\; COPY strings_rows FROM STDIN;
200
1
\.
201
\.
SELECT * FROM strings_rows ORDER BY n;
;
\; \;
SELECT 1\; \; SELECT 2;
/* only a comment */ ;
SELECT 1 /* in /* nested */ comment */ + 1 -- to the end
;
SELECT 'a'
'b';
SELECT 'it''s', "n", E'\t\x41\u00e9\'', U&'d\0061t\+000061', $$dollar $1 'quote'$$, $tag$a $$ b$tag$ FROM (SELECT 1 AS "n") x;
SELECT 'a' 'b';
SELECT E'\u00';
SELECT 'unterminated;
' , "also;
", 1;
BEGIN\; DECLARE strings_cursor CURSOR FOR SELECT generate_series(1, 5)\; FETCH 2 FROM strings_cursor\; FETCH 2 FROM strings_cursor\; COMMIT\; FETCH 1 FROM strings_cursor;
DROP TABLE strings_rows;
