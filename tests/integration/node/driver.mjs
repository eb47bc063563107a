// What the scripts here share: lines of JSON name what to do, and what came of each is written as a line of JSON.

import { createInterface } from "node:readline";
import { Agent, fetch } from "undici";

export const QUESTION = "What is 6 * 7?";
export const AGAIN = "And 7 * 7?";
export const PLACE = {
  type: "object",
  properties: { city: { type: "string" }, people: { type: "integer" } },
  required: ["city", "people"],
  additionalProperties: false,
};
export const NUMBERS = { type: "object", properties: { a: { type: "integer" }, b: { type: "integer" } } };
export const sum = (given) => String(Object.values(given).reduce((a, b) => a + b));

// A fetch that gives up where nothing comes for so many seconds.
export function patient(idle) {
  const dispatcher = new Agent({ bodyTimeout: idle * 1000, headersTimeout: idle * 1000 });
  return (url, options) => fetch(url, { ...options, dispatcher });
}

export async function drive(does) {
  for await (const line of createInterface({ input: process.stdin })) {
    const { do: name, url, how, ...options } = JSON.parse(line);
    let told;
    try {
      told = await does[name](url, how, options);
    } catch (error) {
      const { code, type, responseBody, data } = error;
      told = { error: error.constructor.name, words: String(error), code, type, responseBody, data };
    }
    process.stdout.write(JSON.stringify(told) + "\n");
  }
}
