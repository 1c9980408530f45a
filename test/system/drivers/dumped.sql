-- A database with an object of many kinds, for the tests of pg_dump and pg_restore.

CREATE SCHEMA other;
COMMENT ON SCHEMA other IS 'it''s another; "schema"';
CREATE ROLE reader;
CREATE TYPE mood AS ENUM ('sad', 'ok', 'it''s fine');
CREATE TYPE other.pair AS (a int, b text);
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE COLLATION other.by_code (provider = libc, locale = 'C');
CREATE SEQUENCE other.steps INCREMENT 7 START 3;
SELECT nextval('other.steps');

CREATE TABLE things (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  mood mood NOT NULL DEFAULT 'ok',
  amount positive,
  pair other.pair,
  name text COLLATE other.by_code UNIQUE,
  length int GENERATED ALWAYS AS (length(name)) STORED,
  number double precision,
  big numeric(40, 10),
  at timestamptz,
  span interval,
  day date,
  raw bytea,
  list text[],
  body jsonb,
  step bigint DEFAULT nextval('other.steps')
);
INSERT INTO things (mood, amount, pair, name, number, big, at, span, day, raw, list, body)
SELECT 'it''s fine', n, (n, E'tab\tand\nline \\'::text)::other.pair, 'näme ' || n, n / 3.0::float8, n / 7.0,
  timestamptz '2001-02-03 04:05:06+00' + n * interval '1 hour', n * interval '1 day 2 minutes',
  date '1999-12-31' + n, sha256(n::text::bytea), ARRAY[NULL, '', 'a,b', '"' || n],
  jsonb_build_object('n', n, 'ü', ARRAY[1, n])
FROM generate_series(1, 2000) n;
INSERT INTO things (name, number, raw) VALUES
  ('infinity', 'infinity', NULL), ('nan', 'nan', decode(repeat('00ff', 300000), 'hex'));

CREATE TABLE other.parts (thing bigint REFERENCES things ON DELETE CASCADE, key int, value mood)
  PARTITION BY RANGE (key);
CREATE TABLE other.parts_low PARTITION OF other.parts FOR VALUES FROM (MINVALUE) TO (500);
CREATE TABLE other.parts_high PARTITION OF other.parts FOR VALUES FROM (500) TO (MAXVALUE);
INSERT INTO other.parts SELECT 1 + n % 50, n, 'sad' FROM generate_series(1, 1000) n;
CREATE INDEX ON other.parts (key DESC NULLS LAST) INCLUDE (thing);
CREATE UNIQUE INDEX things_lower ON things (lower(name)) WHERE amount > 10;
ALTER TABLE things CLUSTER ON things_pkey;
CREATE STATISTICS other.mood_of_amount ON mood, amount FROM things;

CREATE VIEW moods AS SELECT mood, count(*) FROM things GROUP BY mood;
CREATE MATERIALIZED VIEW other.sums AS SELECT mood, sum(amount) FROM things GROUP BY mood;
CREATE FUNCTION happier(mood) RETURNS mood LANGUAGE sql AS $$ SELECT 'ok'::mood $$;
CREATE FUNCTION other.stamp() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
  NEW.at := coalesce(NEW.at, now());
  RETURN NEW;
END $body$;
CREATE TRIGGER stamp BEFORE INSERT ON things FOR EACH ROW EXECUTE FUNCTION other.stamp();
CREATE PROCEDURE clear() LANGUAGE sql AS 'DELETE FROM other.parts';
CREATE AGGREGATE other.total (int) (SFUNC = int4pl, STYPE = int, INITCOND = '0');
CREATE OPERATOR other.<+> (LEFTARG = int, RIGHTARG = int, FUNCTION = int4pl);
CREATE RULE keep AS ON DELETE TO moods DO INSTEAD NOTHING;
ALTER TABLE things ENABLE ROW LEVEL SECURITY;
CREATE POLICY happy ON things FOR SELECT TO reader USING (mood <> 'sad');
GRANT SELECT (id, name) ON things TO reader;
GRANT USAGE ON SCHEMA other TO reader;
ALTER DEFAULT PRIVILEGES IN SCHEMA other GRANT SELECT ON TABLES TO reader;
SELECT lo_from_bytea(4711, decode(repeat('0123456789abcdef', 20000), 'hex'));
COMMENT ON COLUMN things.name IS E'two\nlines';
