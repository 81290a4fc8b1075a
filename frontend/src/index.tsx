/** The entry point: TensorBoard imports this module into the plugin's frame and calls `render`. */
import { render as renderTree } from "preact";
import { HttpApi } from "./lib/api";
import { frameVisibility, Poller } from "./lib/poll";
import { Store } from "./lib/store";
import { onReload, readSelection, saveSelection, watchTheme } from "./lib/tensorboard";
import { installTheme } from "./theme/install";
import { App } from "./views/App";

/** TensorBoard's own reload interval: asking more often brings nothing new. */
const POLL_INTERVAL_MS = 5000;

export function render(): void {
  installTheme(window);
  watchTheme(window, (theme) => {
    document.documentElement.dataset.theme = theme;
  });
  document.documentElement.lang = "en";
  document.title = "Plumber";

  const store = new Store(new HttpApi(), readSelection(window));
  store.subscribe(({ runs, selection }) => {
    if (runs !== null) saveSelection(window, selection);
  });
  renderTree(<App store={store} />, document.body);

  new Poller(() => store.refresh(), POLL_INTERVAL_MS, frameVisibility(window)).start();
  onReload(window, () => void store.refresh());
}
