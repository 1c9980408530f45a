// The door of the folder that deals with a process as its host sees it: log, pidfile, user, daemon, files.

export { isInBackground, runInBackground } from "./background.ts";
export {
  type BusService,
  runBusService,
  type ServiceKind,
  type ServicePlace,
} from "./bus_service.ts";
export {
  configFrom,
  type ConfigSources,
  type FileTexts,
  LiveConfig,
  markOf,
  RecordingReader,
} from "./live_config.ts";
export { type Handed, handedLine, HandedReader, readHanded } from "./handed.ts";
export { type NameAnswer, Resolver } from "./resolver.ts";
export { socketActivationProblem } from "./notify.ts";
export { ListenHostError, listenHosts } from "./listen_hosts.ts";
export { Turns } from "./turns.ts";
export {
  loadToCheck,
  loadWithFiles,
  pamProblems,
  reloadProblems,
  tlsFileProblems,
} from "./outside.ts";
export { HostFailure, type HostOptions, HostProcess, withOptions } from "./host_process.ts";
