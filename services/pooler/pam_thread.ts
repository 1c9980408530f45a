// Entry of a thread that asks PAM: one question after the other, and blocked while it does.

import { askPam, type PamAnswer, type PamQuestion, threadPort } from "../../shared/sys/mod.ts";

const port = threadPort();

port.onMessage = (message) => {
  port.post(answerTo(message as PamQuestion));
};

function answerTo(question: PamQuestion): PamAnswer {
  try {
    return askPam(question);
  } catch (error) {
    return { refusal: (error as Error).message, delayMs: 0, errors: [] };
  }
}
