// What companion.js reads: a part of JupyterLab, and what this server's own extension answers.

interface Window {
  _JUPYTERLAB?: Record<string, { init(scope: object): void; get(): Promise<() => object> }>;
}

declare namespace Companion {
  // biome-ignore lint/suspicious/noExplicitAny: JupyterLab's modules come as they are, without types
  type Untyped = any;
  /** The modules that JupyterLab shares with its extensions, by name and version. */
  type Scope = Record<string, Record<string, { from: string; loaded?: boolean | number; get: () => Untyped }>>;
  /** A part of JupyterFrontEnd. */
  type App = { serviceManager: Untyped; commands: Untyped; restored: Promise<unknown> };
  type Action = { label: string; commandId: string; caption?: string };
  type Message = { sender?: string; course?: string; at: string; text: string };
  type Idle = {
    since: string;
    warnings: number;
    said: string;
    follows: string;
    stops_at: string;
    can_keep: boolean;
    keeps: string;
  };
  /** The session as the hub tells it; a part of it may be missing. */
  type Known = {
    version?: number;
    now?: string;
    ends_at?: string | null;
    notices?: number[];
    saves?: number[];
    styles?: string[];
    profile?: string;
    course?: string;
    session_ends_at?: string | null;
    node?: string;
    job_id?: string;
    gpus?: string[];
    has?: string[];
    picture?: boolean;
    more_memory?: string;
    messages?: Message[];
    idle?: Idle;
    more_time?: { possible?: boolean; message?: string; words?: string; until?: string | null };
  };
  /** What is measured, how much of it is used, in words and in percent. */
  type Bar = [string, string, number];
  /** The last sample that the server has; `age` in seconds, `measured` the time of day. */
  type Use = {
    age?: number;
    measured?: string;
    short?: string;
    gpus?: Bar[];
    host?: { bars?: Bar[]; memory?: string; low_since?: number | null };
    problems?: string[];
    simulated?: boolean;
  };
}
