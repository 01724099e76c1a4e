// For scripts/lint: what the scripts of pages find in a browser. The core's modules have another path there.

declare module "*/choose.js" {
  export * from "core/choose.js";
}
declare module "*/hub.js" {
  export * from "core/hub.js";
}
declare module "*/home.js" {
  export * from "core/home.js";
}
declare module "*/times.js" {
  export * from "core/times.js";
}
declare module "*/elements.js" {
  export * from "core/elements.js";
}
declare module "*/words.js" {
  export * from "core/words.js";
}

interface Window {
  jhdata?: { base_url: string; xsrf_token: string };
  _jupyterhub_page_loaded?: boolean;
}
