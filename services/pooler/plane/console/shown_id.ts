// The id of a connection as the console shows it and takes it: in a fleet it says which worker's, since a command
// may be given to any of them.

/** Ids of one worker. */
const idsMax = 2 ** 32;

export function shownId(
  seat: { readonly workerId: number; readonly supervisorPid: number },
  id: number,
): number {
  return seat.supervisorPid === 0 ? id : seat.workerId * idsMax + id % idsMax;
}
