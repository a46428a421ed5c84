// Builds the console into internal/edge/console/assets, which the Go package embeds. File names contain a hash of the content, so
// that browsers may keep them for ever; index.html names them.
import { build, context } from "esbuild";
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const to = join(here, "../internal/edge/console/assets");
const watch = process.argv.includes("--watch");
const committed = "unbuilt.html";

// page writes what is not built by esbuild: the icon, and the page that names all files.
function page(outputs) {
  const names = Object.keys(outputs).map((name) => basename(name));
  const icon = readFileSync(join(here, "src/icon.svg"));
  const iconName = `icon-${createHash("sha256").update(icon).digest("hex").slice(0, 8).toUpperCase()}.svg`;
  writeFileSync(join(to, iconName), icon);
  const find = (ending) => names.find((name) => name.startsWith("main-") && name.endsWith(ending));
  const html = readFileSync(join(here, "src/index.html"), "utf8")
    .replace("main.js", find(".js")).replace("main.css", find(".css")).replace("icon.svg", iconName);
  writeFileSync(join(to, "index.html"), html);
  const keep = new Set([committed, "index.html", iconName, ...names]);
  for (const name of readdirSync(to)) if (!keep.has(name)) rmSync(join(to, name));
}

const options = {
  entryPoints: [join(here, "src/main.tsx")],
  outdir: to,
  entryNames: "[name]-[hash]",
  bundle: true,
  format: "esm",
  target: ["es2022", "chrome111", "firefox115", "safari16.4"],
  jsx: "automatic",
  jsxImportSource: "preact",
  minify: !watch,
  legalComments: "none",
  metafile: true,
  logLevel: "warning",
  plugins: [{ name: "page", setup: (b) => b.onEnd((r) => { if (r.metafile) page(r.metafile.outputs); }) }],
};

mkdirSync(to, { recursive: true });
if (watch) await (await context(options)).watch();
else await build(options);
