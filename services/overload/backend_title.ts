// What PostgreSQL says of a process of its in the place of the command line: whether it serves a client, and whose query
// it helps with. Pure.
//
//   postgres: [<cluster_name>: ]<user> <database> <address>(<port>) <activity>
//   postgres: [<cluster_name>: ]<user> <database> [local] <activity>
//   postgres: [<cluster_name>: ]parallel worker for PID <pid>

/** `walsender` is a client that is given a standby's work. */
const ofClient = /^postgres: (?!(?:\S+: )?walsender ).* (?:\[local\]|\S+\(\d+\))(?: |\0|$)/;
const ofHelper = /^postgres: (?:\S+: )?parallel worker for PID (\d+)/;

export function servesClient(title: string): boolean {
  return ofClient.test(title);
}

/** The process that a parallel worker helps; null: it is none. */
export function leaderOf(title: string): number | null {
  const pid = ofHelper.exec(title)?.[1];
  return pid === undefined ? null : Number(pid);
}
