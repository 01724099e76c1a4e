// The elements of a page, each of the kind that its script expects, and what scripts do with some of them.

/** @template {Element} T @typedef {new () => T} Kind */

/**
 * The elements in `root` that match the selector and are of this kind.
 * @template {Element} [T=HTMLElement]
 * @param {ParentNode} root
 * @param {string} selector
 * @param {Kind<T>} kind
 * @returns {T[]}
 */
export function all(root, selector, kind = /** @type {Kind<any>} */ (HTMLElement)) {
  /** @param {Element} each @returns {each is T} */
  const isOne = (each) => each instanceof kind;
  return [...root.querySelectorAll(selector)].filter(isOne);
}

/**
 * The first of them, or undefined.
 * @template {Element} [T=HTMLElement]
 * @param {ParentNode} root
 * @param {string} selector
 * @param {Kind<T>} [kind]
 * @returns {T | undefined}
 */
export function first(root, selector, kind) {
  return all(root, selector, kind)[0];
}

/**
 * The first of them. Throws where there is none: it is in the script's own template.
 * @template {Element} [T=HTMLElement]
 * @param {ParentNode} root
 * @param {string} selector
 * @param {Kind<T>} [kind]
 * @returns {T}
 */
export function one(root, selector, kind) {
  const found = first(root, selector, kind);
  if (!found) throw new Error(`the page has no ${selector}`);
  return found;
}

/**
 * The sentences that the template gives to its script.
 * @param {string} id of the `<script type="application/json">`
 */
export function wordsIn(id) {
  return JSON.parse(one(document, `#${id}`, HTMLScriptElement).text);
}

/**
 * Write a text where it is another one: a screen reader reads what is written anew.
 * @param {Element} element
 * @param {string} text
 */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Let a button copy a text, and say so for three seconds. Returns false where the browser cannot copy: it can over
 * https, or on this machine.
 * @param {HTMLButtonElement} button
 * @param {string} copied what the button says then
 * @param {() => string} text
 */
export function copyOnClick(button, copied, text) {
  if (!navigator.clipboard) return false;
  const words = button.textContent;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text());
    button.textContent = copied;
    setTimeout(() => (button.textContent = words), 3000);
  });
  return true;
}

/**
 * Escape closes the box of these that is open, and gives the focus back.
 * @param {string} boxes the selector of `<details>`
 */
export function closeOnEscape(boxes) {
  document.addEventListener("keydown", ({ key }) => {
    const open = key === "Escape" && first(document, `${boxes}[open]`, HTMLDetailsElement);
    if (!open) return;
    open.open = false;
    one(open, "summary").focus();
  });
}
