// For the type check: the reader of a stream, as the pages of other extensions import it.

declare module "*/live_pages/stream.js" {
  export * from "extensions/live_pages/static/stream.js";
}
