// Light or dark: as the system has it, until the user chooses.
import { useState } from "preact/hooks";
import { stored } from "../state";
import { IconButton } from "./parts";

const system = window.matchMedia("(prefers-color-scheme: dark)");
function present(): "light" | "dark" {
  const chosen = stored.get("theme");
  return chosen === "light" || chosen === "dark" ? chosen : system.matches ? "dark" : "light";
}

export function applyTheme(): void {
  document.documentElement.dataset["theme"] = present();
  window.dispatchEvent(new Event("theme"));
}
system.addEventListener("change", applyTheme);

export function ThemeSwitch() {
  const [theme, set] = useState(present());
  const other = theme === "dark" ? "light" : "dark";
  return <IconButton name={other === "dark" ? "moon" : "sun"} label={`Switch to ${other} colours`} onClick={() => { stored.set("theme", other); applyTheme(); set(other); }} />;
}

export function Brand(props: { href?: string }) {
  const icon = document.querySelector<HTMLLinkElement>("link[rel=icon]")?.href;
  const inside = <><img src={icon} alt="" /><span>Bartleby</span></>;
  return props.href ? <a class="brand" href={props.href} aria-label="Bartleby: overview">{inside}</a> : <div class="brand">{inside}</div>;
}
