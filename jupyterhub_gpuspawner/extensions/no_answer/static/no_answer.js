// The page that the proxy shows in the place of a server that does not answer: on to what the hub knows of it.

import { one } from "../elements.js";

// not in a frame, where the hub's pages are not shown
if (window.top === window) location.replace(one(document, "#gpuspawner-known", HTMLAnchorElement).href);
