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
  store.subscribe(({ chosen }) => saveSelection(window, chosen));
  renderTree(<App store={store} />, document.body);

  const visibility = frameVisibility(window);
  new Poller(() => store.refresh(), POLL_INTERVAL_MS, visibility).start();
  // While hidden the news can wait: on return the poller asks by itself.
  onReload(window, () => void (visibility.shown() && store.refresh()));
}
