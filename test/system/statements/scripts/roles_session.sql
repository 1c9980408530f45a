-- needs the session
-- Another role for the rest of the session.
CREATE ROLE roles_session_user;
CREATE TABLE roles_session_table (a int);
SET ROLE roles_session_user;
SELECT current_user, session_user;
SELECT * FROM roles_session_table;
RESET ROLE;
SELECT * FROM roles_session_table;
SET ROLE NONE;
SET ROLE roles_session_nobody;
SET SESSION AUTHORIZATION roles_session_user;
SELECT current_user, session_user;
SHOW is_superuser;
CREATE ROLE roles_session_more;
DROP TABLE roles_session_table;
SET ROLE postgres;
SET SESSION AUTHORIZATION postgres;
SELECT current_user, session_user;
RESET SESSION AUTHORIZATION;
SHOW is_superuser;
DROP TABLE roles_session_table;
DROP ROLE roles_session_user;
