// The page that the proxy shows in the place of a server that does not answer: on to what the hub knows of it.

// not in a frame, where the hub's pages are not shown
if (window.top === window) location.replace(document.getElementById("gpuspawner-known").href);
