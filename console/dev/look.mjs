// Takes pictures of pages for whoever works on them: node dev/look.mjs NAME=HASH... (BARTLEBY names the
// binary). With STUB=1 the pages of the office show what test/stub.mjs makes up.
import { join } from "node:path";
import { answers, stub } from "../test/stub.mjs";
import { fill, office, openBrowser, openPage, pictures, signIn, startNode, visit } from "../test/harness.mjs";

const node = await startNode();
const browser = await openBrowser();
try {
  await fill(node);
  await office(node);
  for (const [mode, options] of [["light", {}], ["dark", { colorScheme: "dark" }], ["narrow", { viewport: { width: 360, height: 740 } }]]) {
    const page = await openPage(browser, node, options);
    await page.goto(node.base + "/");
    await page.getByLabel("User name").waitFor();
    if (process.argv.includes("signin")) await page.screenshot({ path: join(pictures, `signin-${mode}.png`) });
    if (process.env.STUB) await stub(page, answers);
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
  await node.stop();
}
