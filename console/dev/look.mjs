// Takes pictures of pages for whoever works on them: node dev/look.mjs NAME=HASH... (BARTLEBY names the
// binary; --mock makes up the office).
import { join } from "node:path";
import { mock } from "./mock.mjs";
import { fill, openBrowser, openPage, pictures, signIn, startNode, visit } from "../test/harness.mjs";

const node = await startNode();
let front;
const browser = await openBrowser();
try {
  await fill(node);
  if (process.argv.includes("--mock")) {
    front = mock(node.base);
    await new Promise((f) => front.listen(0, "127.0.0.1", f));
    node.base = `http://127.0.0.1:${front.address().port}`;
  }
  for (const [mode, options] of [["light", {}], ["dark", { colorScheme: "dark" }], ["narrow", { viewport: { width: 360, height: 740 } }]]) {
    const page = await openPage(browser, node, options);
    await page.goto(node.base + "/");
    await page.getByLabel("User name").waitFor();
    if (process.argv.includes("signin")) await page.screenshot({ path: join(pictures, `signin-${mode}.png`) });
    await signIn(page, node);
    for (const arg of process.argv.slice(2)) {
      const [name, ...hash] = arg.split("=");
      if (hash.length === 0) continue;
      await visit(page, hash.join("="));
      await page.screenshot({ path: join(pictures, `${name}-${mode}.png`), fullPage: true });
    }
    if (page.faults.length) console.log(mode, page.faults);
  }
} finally {
  await browser.close();
  front?.closeAllConnections();
  front?.close();
  await node.stop();
}
