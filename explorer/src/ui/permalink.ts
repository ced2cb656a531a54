/**
 * A state as the fragment of an address, `#gamma=0.3&M=0.1,0.2;0.3,0.4`: what differs from the default, in words that
 * can be read and edited. A value that is not accepted is left out, and named.
 */

export interface Codec<T> {
  write(value: T): string;
  /** Undefined where the text is not accepted. */
  read(text: string): T | undefined;
}

export type Codecs<S> = { readonly [K in keyof S]: Codec<S[K]> };

const number = (text: string): number | undefined => {
  const value = text.trim() === "" ? NaN : Number(text);
  return Number.isFinite(value) ? value : undefined;
};

export function real(min: number, max: number): Codec<number> {
  return {
    write: String,
    read: (text) => {
      const value = number(text);
      return value !== undefined && value >= min && value <= max ? value : undefined;
    },
  };
}

export function integer(min: number, max: number): Codec<number> {
  const inRange = real(min, max);
  return {
    write: String,
    read: (text) => {
      const value = inRange.read(text);
      return value !== undefined && Number.isInteger(value) ? value : undefined;
    },
  };
}

export function oneOf<T extends string>(words: readonly T[]): Codec<T> {
  return { write: (value) => value, read: (text) => words.find((word) => word === text) };
}

export const flag: Codec<boolean> = {
  write: (value) => (value ? "1" : "0"),
  read: (text) => (text === "1" ? true : text === "0" ? false : undefined),
};

/** Words of a form, separated by commas; none at all is a dash. */
export function words(form: RegExp): Codec<readonly string[]> {
  return {
    write: (values) => values.join(",") || "-",
    read: (text) => {
      if (text === "-") return [];
      const values = text.split(",");
      return values.every((word) => form.test(word)) ? [...new Set(values)] : undefined;
    },
  };
}

export function list(entry: Codec<number>, most: number): Codec<readonly number[]> {
  return {
    write: (values) => values.map(entry.write).join(","),
    read: (text) => {
      const values = text.split(",").map(entry.read);
      return values.length <= most && values.every((v) => v !== undefined) ? values : undefined;
    },
  };
}

export function matrix(entry: Codec<number>, most: number): Codec<readonly (readonly number[])[]> {
  const row = list(entry, most);
  return {
    write: (rows) => rows.map(row.write).join(";"),
    read: (text) => {
      const rows = text.split(";").map(row.read);
      const accepted = rows.length <= most && rows.every((r) => r !== undefined);
      return accepted && rows.every((r) => r.length === rows[0].length) ? rows : undefined;
    },
  };
}

/** The fragment, without its #. */
export function writeLink<S extends object>(codecs: Codecs<S>, state: S, standard: S): string {
  const words = (Object.keys(codecs) as (keyof S & string)[]).flatMap((key) => {
    const text = codecs[key].write(state[key]);
    return text === codecs[key].write(standard[key]) ? [] : [`${key}=${encodeURIComponent(text)}`];
  });
  return words.join("&").replaceAll("%2C", ",").replaceAll("%3B", ";");
}

/** The values in a fragment, and the words in it that were not understood. */
export function readLink<S extends object>(codecs: Codecs<S>, fragment: string): { values: Partial<S>; refused: string[] } {
  const values: Partial<S> = {};
  const refused: string[] = [];
  for (const word of fragment.replace(/^#/, "").split("&").filter(Boolean)) {
    const [key, text = ""] = word.split("=", 2);
    const codec = Object.hasOwn(codecs, key) ? codecs[key as keyof S] : undefined;
    let value: S[keyof S] | undefined;
    try {
      value = codec?.read(decodeURIComponent(text));
    } catch {
      value = undefined; // a broken escape
    }
    if (value === undefined) refused.push(word);
    else values[key as keyof S] = value;
  }
  return { values, refused };
}
