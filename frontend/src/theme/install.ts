/** Puts the stylesheet into the frame. Adopted, not inserted: no content security policy forbids it. */
import { customProperties, DARK, LIGHT } from "./tokens";
import css from "./style.css?inline";

export function installTheme(frame: Window & typeof globalThis): void {
  const sheet = new frame.CSSStyleSheet();
  sheet.replaceSync(
    `:root{color-scheme:light;${customProperties(LIGHT)}}:root[data-theme=dark]{color-scheme:dark;${customProperties(DARK)}}${css}`,
  );
  frame.document.adoptedStyleSheets = [...frame.document.adoptedStyleSheets, sheet];
}
