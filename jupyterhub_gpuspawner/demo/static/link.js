// The page of the demo's link: sends the key in the fragment of its address as a form, and takes it out of the address.

const key = location.hash.slice(1);
const form = document.getElementById("demo-link-form");
const field = form?.querySelector("input[name=key]");
if (key && form instanceof HTMLFormElement && field instanceof HTMLInputElement) {
  history.replaceState(null, "", location.pathname);
  field.value = key;
  form.submit();
}
