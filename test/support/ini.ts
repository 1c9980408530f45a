// Writes pooler configuration files (pgbouncer.ini and userlist) from objects. It quotes nothing but userlist
// entries: a test that wants odd syntax writes its own text.

/** Sections of an ini file; a section's settings in order. */
export type Ini = Readonly<Record<string, Readonly<Record<string, string | number>>>>;

export function iniText(ini: Ini): string {
  return Object.entries(ini).map(([section, settings]) =>
    `[${section}]\n` +
    Object.entries(settings).map(([name, value]) => `${name} = ${value}\n`).join("")
  ).join("\n");
}

/** Adds settings that the ini does not have. */
export function withDefaults(ini: Ini, defaults: Ini): Ini {
  const merged: Record<string, Record<string, string | number>> = {};
  for (const section of new Set([...Object.keys(defaults), ...Object.keys(ini)])) {
    merged[section] = { ...defaults[section], ...ini[section] };
  }
  return merged;
}

/** A userlist file: `"name" "secret"` lines, with quotes in either doubled. */
export function userlistText(users: Readonly<Record<string, string>>): string {
  const quoted = (value: string) => `"${value.replaceAll('"', '""')}"`;
  return Object.entries(users).map(([name, secret]) => `${quoted(name)} ${quoted(secret)}\n`).join(
    "",
  );
}
