// The door of the bus folder: how processes of a mesh talk to each other. The only folder that
// imports the NATS client.

export type { Bus, BusCounters, BusOptions, Delivery, Handler } from "./api.ts";
export type { BudgetBackends, BudgetLeader, GoneWorker, LeafBackends } from "./budget_messages.ts";
export { packPids, unpackPids } from "./budget_messages.ts";
export type { GroupUses } from "./group_uses.ts";
export type { ConsoleRequest, WorkerTask, WorkerTaskReply } from "./console_messages.ts";
export { connectBus } from "./bus.ts";
export { isWorkerId } from "./checks.ts";
export {
  type BusAddress,
  busOptions,
  type BusSettings,
  type BusTls,
} from "./connection_options.ts";
export { maxPayloadBytes } from "./codec.ts";
export {
  EmbeddedBus,
  type EmbeddedBusAddress,
  type EmbeddedBusCounters,
  type EmbeddedBusLimits,
  type EmbeddedBusOptions,
} from "./embedded.ts";
export { BusError, type BusErrorCode } from "./errors.ts";
export {
  type GroupBackend,
  type GroupBackends,
  type GroupBytes,
  type GroupMemory,
  type GroupRow,
  maxGroupBackends,
  maxGroupNameCharacters,
  maxGroupRows,
  type MeasuredBackend,
  type MeasuredDatabase,
} from "./group_messages.ts";
export { openStore, type OpenStoreOptions } from "./jetstream_store.ts";
export { MemoryStore } from "./memory_store.ts";
export {
  maxWarnings,
  type OverloadDecision,
  type OverloadWarning,
  type OverloadWarnings,
  validMs,
  type WarningKind,
} from "./overload_messages.ts";
export type { Shedding } from "../overload/mod.ts";
export {
  maxKeyCharacters,
  maxValueBytes,
  type Store,
  type StoredValue,
  type StoreEntry,
} from "./store.ts";
export { openEmbeddedStore, serveStore } from "./store_service.ts";
export {
  type CancelOutcome,
  type CancelReply,
  type CancelRequest,
  isMeshName,
  type MeshSubjects,
  meshSubjects,
  type Pattern,
  type Presence,
  type Rights,
  type Subject,
  type WorkerState,
} from "./subjects.ts";
