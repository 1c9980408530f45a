// What a command that a client's server has done, known by its tag, changes in what the pooler knows of
// that server's session, and of the client.

import { Request } from "./requests.ts";
import type { ServerConnection } from "./server.ts";
import { dropsStatements, Tag } from "./tags.ts";

/** A request of the linked client was answered with this tag. */
export function onTag(server: ServerConnection, tag: Tag): void {
  const { client, journal, residue, session } = server;
  switch (tag) {
    case Tag.deallocateAll:
      return journal.onDiscard(client?.names ?? null);
    case Tag.discardAll:
      if (client?.pinned) residue.locksUnsure = true;
      if (client !== null && client.mode !== "session") residue.listen.onDiscard();
      residue.hears = false;
      residue.settings.onTag("DISCARD ALL");
      residue.settings.onCommit();
      if (client?.mode !== "session") session.forget(false);
      return journal.onDiscard(client?.names ?? null);
    case Tag.alter:
    case Tag.createView:
    case Tag.drop:
      return server.plane.tableChanges.seen(server.pool.database.name);
    case Tag.reset:
      residue.settings.onTag("RESET");
      if (client?.mode !== "session") session.forget(false);
      return;
    case Tag.set:
      residue.settings.onTag("SET");
      if (client?.mode !== "session") residue.onSet();
      return;
    case Tag.listen:
      if (client?.mode === "session") residue.hears = true;
      return residue.listen.onListen();
    case Tag.unlisten:
      return residue.listen.onUnlisten();
    case Tag.commit:
      residue.settings.onCommit();
      return residue.listen.onCommit();
    case Tag.savepoint:
      residue.settings.onSavepoint();
      return residue.listen.onSavepoint();
    case Tag.release:
      residue.settings.onRelease();
      return residue.listen.onRelease();
    case Tag.rollback:
      residue.settings.onRollback();
      return residue.listen.onRollback();
  }
}

/** The Execute at the front, if one is there, is answered: with this tag, or without one. */
export function onExecuted({ client, journal, requests }: ServerConnection, tag: Tag): void {
  const front = requests.front();
  if (front !== Request.execute && front !== Request.executeDrop) return;
  requests.pop();
  if (front === Request.execute) return;
  if (dropsStatements(tag)) journal.done();
  else journal.revert(client?.names ?? null);
}
