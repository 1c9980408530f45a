// What tests of logins share.

import { RawClient, ServerError } from "../../support/raw_client.ts";

/** How a login with a password ends: "in", if under the user's own name, or with which SQLSTATE and message. */
export async function loginEnd(
  target: Parameters<typeof RawClient.login>[0],
  database: string,
  user: string,
  password: string,
): Promise<string> {
  try {
    const client = await RawClient.login(target, { user, database, password });
    const [row] = await client.query("SELECT current_user");
    await client.end();
    return row![0] === user ? "in" : `in as ${row![0]}`;
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    return `${error.code} ${error.fields.message}`;
  }
}
