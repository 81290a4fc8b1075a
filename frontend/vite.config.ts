import { defineConfig } from "vitest/config";

const here = (path: string) => new URL(path, import.meta.url).pathname;

// One self-contained ES module that exports `render`: what TensorBoard imports into the plugin's frame.
// It is built into the Python package, which serves it; it is never committed.
export default defineConfig(({ command, mode }) => ({
  root: here(command === "serve" && mode !== "test" ? "dev" : "."),
  build: {
    outDir: here("../tensorboard_plugin_plumber/plugin/static"),
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    rollupOptions: {
      input: here("src/index.tsx"),
      preserveEntrySignatures: "strict",
      output: { format: "es", entryFileNames: "index.js" },
    },
  },
  test: { environment: "jsdom", include: ["src/**/*.test.{ts,tsx}"] },
}));
