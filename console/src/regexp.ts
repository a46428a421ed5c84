// Regular expressions as the node takes them (RE2), made for the browser.

/** pattern compiles an expression of RE2; it throws what is wrong. Flags in front, as (?i), and names of groups are written otherwise here. */
export function pattern(text: string): RegExp {
  let flags = "", source = text;
  const front = /^\(\?([ims]+)\)/.exec(source);
  if (front) { flags = front[1]!; source = source.slice(front[0].length); }
  source = source.replaceAll("(?P<", "(?<").replaceAll("\\A", "^").replaceAll("\\z", "$");
  try { return new RegExp(source, [...new Set(flags)].join("")); } catch (e) { throw new Error(`“${text}” is no regular expression: ${(e as Error).message.replace(/^Invalid regular expression: (\/.*\/\w*: )?/, "")}`); }
}
