// Styles are imported for esbuild, which puts them into one file.
declare module "*.css";
