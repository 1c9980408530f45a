// How clients hear of errors in the tests of reloads and commands.

import { Backend, parseErrorFields } from "../../../shared/wire/mod.ts";
import type { RawClient, ServerError } from "../../support/raw_client.ts";

/** The error that a console answers a command with. */
export async function errorOf(console: RawClient, command: string): Promise<string> {
  const error = await console.query(command).then(() => null, (error: ServerError) => error);
  return `${error?.code} ${error?.fields.message}`;
}

/** The error that a connection was ended with. */
export async function farewell(client: RawClient): Promise<string> {
  const messages = await client.messagesUntil(null);
  const last = messages.findLast(({ type }) => type === Backend.errorResponse);
  const { severity, code, message } = parseErrorFields(last?.body ?? new Uint8Array());
  return `${severity} ${code} ${message}`;
}
