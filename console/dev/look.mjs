// Takes pictures of pages for whoever works on them: node dev/look.mjs NAME=HASH... (BARTLEBY names the
// binary). After a hash, " > BUTTON" presses a button. With STUB=1 the pages of the office show what test/stub.mjs makes up.
import { join } from "node:path";
import { answers, stub } from "../test/stub.mjs";
import { fill, openBrowser, openPage, pictures, signIn, startNode, visit } from "../test/harness.mjs";

const node = await startNode();
const browser = await openBrowser();
try {
  await fill(node);
 
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
      const [at, ...buttons] = hash.join("=").split(" > ");
      await page.keyboard.press("Escape"); // a dialog of the page before
      await visit(page, at);
      for (const b of buttons) { await page.getByRole("button", { name: b }).first().click(); await page.waitForTimeout(800); }
      await page.screenshot({ path: join(pictures, `${name}-${mode}.png`), fullPage: true });
    }
    if (page.faults.length) console.log(mode, page.faults);
  }
} finally {
  await browser.close();
  await node.stop();
}
